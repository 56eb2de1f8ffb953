"""One table of a TOML document, read field by field; faults are collected and reading goes on with a stand-in."""

import difflib
import json
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from processor.domain.durations import EXAMPLES, parse_duration

_Choice = TypeVar("_Choice", bound=str)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class Table:
    """A table and its place in the document. `problems` is shared by all tables of one document; `faulty` holds the
    fields of this table that have a problem already."""

    def __init__(self, values: dict[str, Any], place: str, problems: list[str]) -> None:
        self.values = values
        self.faulty: set[str] = set()
        self._place = place
        self._problems = problems

    def problem(self, field: str, message: str) -> None:
        """Note a fault of a field."""
        self.faulty.add(field)
        self._problems.append(f"{self._place}{_key(field)}: {message}")

    def refuse_unknown(self, known: Sequence[str]) -> None:
        """Every other field is a fault; a near miss is named."""
        for field in self.values:
            if field not in known:
                near = difflib.get_close_matches(field, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"the fields here are {', '.join(known)}"
                self.problem(field, f"there is no such field; {hint}")

    def table(self, field: str) -> "Table":
        """A table inside this one; an absent one is empty."""
        value = self.values.get(field, {})
        if not isinstance(value, dict):
            self.problem(field, f"must be a table, and is {_kind_of(value)}")
            value = {}
        return self.inner(field, value)

    def inner(self, field: str, values: dict[str, Any]) -> "Table":
        """Values that stand inside this table, such as one item of an array, as a table of their own."""
        return Table(values, f"{self._place}{_key(field)}.", self._problems)

    def tables(self, field: str) -> list["Table"]:
        """An array of tables; empty where it is absent or faulty."""
        value = self.values.get(field, [])
        if not isinstance(value, list):
            self.problem(field, f"must be an array of tables, and is {_kind_of(value)}")
            return []
        found = []
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                self.problem(f"{field}[{index}]", f"must be a table, and is {_kind_of(item)}")
                self.faulty.add(field)
            else:
                found.append(self.inner(f"{field}[{index}]", item))
        return found

    def text(self, field: str, default: str | None) -> str:
        """A string; None as default says that the field is required."""
        value = self.values.get(field, default)
        if isinstance(value, str):
            return value
        self.problem(field, "is missing" if value is None else f"must be a string, and is {_kind_of(value)}")
        return ""

    def choice(self, field: str, choices: Sequence[_Choice]) -> _Choice:
        """One of a few strings; the first one is the default."""
        value = self.values.get(field, choices[0])
        for choice in choices:
            if value == choice:
                return choice
        listed = " or ".join(f'"{choice}"' for choice in choices)
        shown = repr(value[:40]) if isinstance(value, str) else _kind_of(value)
        self.problem(field, f"must be {listed}, and is {shown}")
        return choices[0]

    def duration(self, field: str, default_ms: int | None) -> int:
        """A duration in milliseconds; None as default says that the field is required."""
        value = self.values.get(field)
        if value is None and default_ms is not None:
            return default_ms
        if isinstance(value, str):
            try:
                return parse_duration(value)
            except ValueError as error:
                self.problem(field, str(error))
        elif value is None:
            self.problem(field, f"is missing: write a duration, such as {EXAMPLES}")
        else:
            self.problem(field, f"must be a duration in quotes, such as {EXAMPLES}, and is {_kind_of(value)}")
        return default_ms or 0

    def whole_number(self, field: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds, both included."""
        value = self.values.get(field, default)
        # True is an int to Python, and a boolean to the person who wrote it.
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        shown = str(value) if isinstance(value, int | float) and abs(value) < 1e15 else _kind_of(value)
        self.problem(field, f"must be a whole number from {least} to {most}, and is {shown.lower()}")
        return default

    def share(self, field: str, default: float) -> float:
        """A number from 0 to 1."""
        value = self.values.get(field, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        self.problem(field, "must be a number from 0 to 1")
        return default


def _key(field: str) -> str:
    """A field's name as TOML writes it; an odd or very long one is quoted, escaped and cut."""
    plain = re.sub(r"\[[0-9]+\]$", "", field)
    return field if _BARE_KEY.fullmatch(plain) and len(field) <= 80 else json.dumps(field[:80])


def _kind_of(value: object) -> str:
    """What a TOML value is, in a person's words."""
    names = {bool: "a boolean", str: "a string", int: "a whole number", float: "a number", list: "an array"}
    return names.get(type(value), "a table" if isinstance(value, dict) else "a date or a time")
