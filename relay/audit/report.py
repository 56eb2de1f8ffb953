"""What a run of the audit found, for people and for programs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from relay.audit.rules import Rule, Violation

KEPT = 100
"""Details kept of each rule; more are counted."""
SHOWN = 10
MEANING = {
    Rule.OPEN_OVERDUE: "each notification ended, or its next moment is not overdue",
    Rule.AFTER_STOP: "nothing claimed after its stop; what was in flight is named too_late",
    Rule.OTHER_KEY: "no step attempted under two keys",
    Rule.KEY_FORM: "every key is notification_id:step_no",
    Rule.ORDER: "first attempts start in the order of acceptance",
    Rule.OUTBOX_UNANSWERED: "every committed request is answered",
    Rule.COUNTERS: "escalation and cancellation counters equal a recount",
    Rule.JOURNAL_DIFFERS: "the journal holds every event once, and nothing else",
    Rule.REPEATED_EVENT: "the topic holds no event twice",
}


@dataclass(slots=True)
class Report:
    """What was looked at and what was found; times are milliseconds since the epoch."""

    started_at: int
    since: int | None = None
    ended_at: int = 0
    checked: Counter[str] = field(default_factory=Counter)
    violations: Counter[Rule] = field(default_factory=Counter)
    details: list[Violation] = field(default_factory=list)
    """At most `KEPT` of each rule."""
    open: int = 0
    """Notifications that have not ended."""
    waiting: int = 0
    """Requests too young to be judged, or not published yet."""
    notes: list[str] = field(default_factory=list)
    """What could not be compared, and why."""

    @property
    def clean(self) -> bool:
        """Whether every promise was kept."""
        return not self.violations.total()

    def add(self, found: Iterable[Violation]) -> None:
        """Take in violations."""
        for violation in found:
            self.violations[violation.rule] += 1
            if self.violations[violation.rule] <= KEPT:
                self.details.append(violation)

    def json(self) -> str:
        """One JSON object."""
        value: dict[str, Any] = {
            "clean": self.clean,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "since": self.since,
            "checked": dict(self.checked),
            "open": self.open,
            "waiting": self.waiting,
            "violations": {rule.value: self.violations[rule] for rule in Rule},
            "details": [
                {"rule": v.rule.value, "notification_id": v.notification_id, "detail": v.detail} for v in self.details
            ],
            "notes": self.notes,
        }
        return msgspec.json.encode(value).decode()


def render(report: Report, console: Console) -> None:
    """Print a report for a person."""
    table = Table(title=f"Audit of {_time(report.ended_at)}, {_begin(report)}", title_justify="left")
    table.add_column("rule")
    table.add_column("what must hold")
    table.add_column("violations", justify="right")
    for rule in Rule:
        number = report.violations[rule]
        table.add_row(rule.value, MEANING[rule], f"[red]{number}[/red]" if number else "0")
    console.print(table)
    looked = ", ".join(f"{number} {what.replace('_', ' ')}" for what, number in sorted(report.checked.items()))
    console.print(f"checked: {looked or 'nothing'}; open: {report.open}; requests waiting: {report.waiting}")
    for note in report.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    for rule in Rule:
        shown = [v for v in report.details if v.rule is rule][:SHOWN]
        for violation in shown:
            who = f" {violation.notification_id}" if violation.notification_id else ""
            console.print(f"{rule.value}{who}: {violation.detail}", markup=False, highlight=False, soft_wrap=True)
        if (more := report.violations[rule] - len(shown)) > 0:
            console.print(f"{rule.value}: and {more} more", markup=False)


def _begin(report: Report) -> str:
    return "all that the topic holds" if report.since is None else f"from {_time(report.since)}"


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
