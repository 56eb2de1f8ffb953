"""Where a waiting record goes next and when. Pure: time is an argument.

All times are whole milliseconds since the epoch.
"""

from schemas.envelope import DUE_AT_HEADER, RawHeaders
from schemas.errors import DecodeError
from schemas.reasons import DeadReason
from schemas.topics import TIERS, Tier, tier_for

_MOST_DIGITS = 13
"""Thirteen digits reach to the year 2286; a moment in micro- or nanoseconds has more, and is a mistake."""

SMALLEST = TIERS[0]


def due_at(headers: RawHeaders | None) -> int:
    """The moment that a record waits for; of a repeated header the last one counts.

    Raises:
        DecodeError: there is no such header, or it is no decimal number of milliseconds.
    """
    found: bytes | str | None = None
    for name, value in reversed(headers or ()):
        if name == DUE_AT_HEADER:
            found = value
            break
    if not found:
        raise DecodeError(DeadReason.MISSING_HEADER, f"header {DUE_AT_HEADER} is missing")
    text = found.encode(errors="replace") if isinstance(found, str) else found
    # Of bytes, `isdigit` takes the ten ASCII digits and nothing else.
    if len(text) > _MOST_DIGITS or not text.isdigit():
        raise DecodeError(DeadReason.BAD_HEADER, f"header {DUE_AT_HEADER} is no decimal number of milliseconds")
    return int(text)


def release_at(due: int, appended_at: int | None, tier: Tier, now: int) -> int:
    """When a record that was appended to `tier` at `appended_at` and is read at `now` leaves that tier.

    A record cannot be appended after it is read: a later append time is a clock that ran ahead, or has been set back
    since, and counts as now. Without an append time the wait starts now.
    """
    start = now if appended_at is None or appended_at > now else appended_at
    end = start + tier.delay_ms
    return due if due < end else end


def next_tier(due: int, now: int) -> Tier | None:
    """Where a released record goes: None is the `due` topic, and only when its moment has come."""
    remaining = due - now
    return None if remaining <= 0 else tier_for(remaining)
