"""Read ladders from TOML: one ladder per kind, checked as a whole before anything starts.

The reader goes on after a fault and reports all of them together. Each message names the file, the kind, the field
(with the step's index, counted from 0 as in events) and what to write instead.

    [kinds.payment_action_required]
    stop_on = "resolution"          # or "sent", "delivered"; default "resolution"
    expires_after = "24h"           # default 24h; longer than the last step's `after`
    quiet_hours = "shift"           # or "ignore"; default "shift"
    ordering = "first-attempt"      # or "strict"; default "first-attempt"
    retry = { max_attempts = 4, base = "1s", cap = "30s", jitter = 0.2 }    # these are the defaults
    steps = [
      { channel = "push", after = "0s" },
      { channel = "email", after = "2h", template = "payment_reminder" },   # default: the kind's name
    ]
"""

import re
import tomllib
from collections.abc import Sequence
from typing import Literal

from processor.domain.durations import format_duration
from processor.domain.toml_table import Table
from schemas.state import Ladder, LadderStep, RetryPolicy

NAME = re.compile(r"[a-z][a-z0-9_-]*")
"""Kinds, channels and templates. Templates are folder names, so a name can never be a path."""
MAX_ATTEMPTS_LIMIT = 100
MAX_STEPS = 100
"""Far above any real ladder, and low enough that the state of a recipient stays a small record."""

_STOP_ON: tuple[Literal["resolution", "sent", "delivered"], ...] = ("resolution", "sent", "delivered")
_QUIET_HOURS: tuple[Literal["shift", "ignore"], ...] = ("shift", "ignore")
_ORDERING: tuple[Literal["first-attempt", "strict"], ...] = ("first-attempt", "strict")
_NAME_HINT = "use lower-case letters, digits, - and _, and start with a letter"


class LadderError(ValueError):
    """Everything that is wrong with one ladder file; `problems` holds one line for each fault."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def parse_ladders(text: str, source: str) -> dict[str, Ladder]:
    """The ladders of a TOML text by kind, in the text's order. `source` is the name that error messages begin with.

    Raises:
        LadderError: at least one ladder is not as the contract says; all faults are listed.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # RecursionError and plain ValueError: tables nested too deep, a number of thousands of digits.
        raise LadderError([f"{source}: this is no TOML: {error}"]) from error
    problems: list[str] = []
    root = Table(document, f"{source}: ", problems)
    root.refuse_unknown(("kinds",))
    kinds = root.table("kinds")
    if not kinds.values and not problems:
        root.problem("kinds", "there is no kind: add a table [kinds.<name>] with its steps")
    ladders = {kind: _ladder(kind, kinds) for kind in kinds.values}
    if problems:
        raise LadderError(problems)
    return ladders


def _ladder(kind: str, kinds: Table) -> Ladder:
    if NAME.fullmatch(kind) is None:
        kinds.problem(kind, f"this is no name for a kind: {_NAME_HINT}")
    table = kinds.table(kind)
    if not isinstance(kinds.values[kind], dict):
        return Ladder(kind=kind, steps=())
    table.refuse_unknown(("steps", "stop_on", "expires_after", "quiet_hours", "ordering", "retry"))
    steps = _steps(kind, table)
    default = Ladder(kind=kind, steps=steps)
    expires_after = table.duration("expires_after", default.expires_after_ms)
    last = max((step.after_ms for step in steps), default=-1)
    if expires_after <= last and "expires_after" not in table.faulty:
        table.problem(
            "expires_after",
            f"{format_duration(expires_after)} must be longer than the last step's after ({format_duration(last)}), "
            "or that step can never be sent",
        )
    return Ladder(
        kind=kind,
        steps=steps,
        stop_on=table.choice("stop_on", _STOP_ON),
        expires_after_ms=expires_after,
        quiet_hours=table.choice("quiet_hours", _QUIET_HOURS),
        ordering=table.choice("ordering", _ORDERING),
        retry=_retry(table.table("retry")),
    )


def _retry(table: Table) -> RetryPolicy:
    table.refuse_unknown(("max_attempts", "base", "cap", "jitter"))
    default = RetryPolicy()
    base = table.duration("base", default.base_ms)
    cap = table.duration("cap", max(base, default.cap_ms))
    if base > cap:
        table.problem("base", f"{format_duration(base)} must not be longer than cap ({format_duration(cap)})")
    return RetryPolicy(
        max_attempts=table.whole_number("max_attempts", default.max_attempts, 1, MAX_ATTEMPTS_LIMIT),
        base_ms=base,
        cap_ms=cap,
        jitter=table.share("jitter", default.jitter),
    )


def _steps(kind: str, table: Table) -> tuple[LadderStep, ...]:
    found = table.tables("steps")
    if not found or len(found) > MAX_STEPS:
        if "steps" not in table.faulty:
            table.problem("steps", f'1 to {MAX_STEPS} are needed, such as {{ channel = "email", after = "0s" }}')
        return ()
    steps = tuple(_step(kind, step) for step in found)
    for index in range(1, len(steps)):
        _check_order(steps, index, found[index])
    return steps


def _step(kind: str, table: Table) -> LadderStep:
    table.refuse_unknown(("channel", "after", "template"))
    return LadderStep(
        channel=_name(table, "channel", None),
        after_ms=table.duration("after", None),
        template=_name(table, "template", kind),
    )


def _name(table: Table, field: str, default: str | None) -> str:
    name = table.text(field, default)
    if field in table.values and field not in table.faulty and NAME.fullmatch(name) is None:
        table.problem(field, f"{name[:80]!r} is no name for a {field}: {_NAME_HINT}")
    return name


def _check_order(steps: tuple[LadderStep, ...], index: int, table: Table) -> None:
    if table.faulty:
        return
    step = steps[index]
    before = steps[index - 1]
    if step.after_ms < before.after_ms:
        table.problem(
            "after",
            f"{format_duration(step.after_ms)} is before the step above ({format_duration(before.after_ms)}): "
            "put the steps in the order of their time",
        )
    elif any((s.channel, s.after_ms) == (step.channel, step.after_ms) for s in steps[:index]):
        table.problem("channel", f"{step.channel} has a step at the same time already: remove one of the two")
