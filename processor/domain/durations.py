"""Lengths of time as people write them in a ladder file: a whole number and one unit."""

import re

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LIMIT_MS = 365 * UNITS_MS["d"]
"""A year. It keeps every derived moment far inside what a 64-bit integer and a calendar can hold."""

_FORM = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
EXAMPLES = '"500ms", "30s", "10m", "2h" or "7d"'


def parse_duration(text: str) -> int:
    """The milliseconds of a duration such as "500ms", "0s", "10m", "2h" or "7d".

    Raises:
        ValueError: the text has another form, or is longer than a year; the message says how to write it.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is no duration: write a whole number and a unit, such as {EXAMPLES}")
    length = int(match[1]) * UNITS_MS[match[2]]
    if length > LIMIT_MS:
        raise ValueError(f"{text!r} is too long: the most is 365d")
    return length


def format_duration(length_ms: int) -> str:
    """The shortest form that `parse_duration` reads back as the same length."""
    if length_ms == 0:
        return "0s"
    unit = next(unit for unit, size in reversed(UNITS_MS.items()) if length_ms % size == 0)
    return f"{length_ms // UNITS_MS[unit]}{unit}"
