"""The table of a run: on the terminal, and as Markdown."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.support.chaos.ledger import Verdict

COLUMNS = ("fault", "times", "recovery, median", "recovery, max", "lost", "after stop", "in flight", "duplicates")


@dataclass(slots=True)
class Fault:
    """One injection. Times are milliseconds since the epoch."""

    name: str
    at: int
    since: int
    """From when the recovery is counted: the fault, or the end of one that lasts."""
    recovered_ms: int | None = None


@dataclass(slots=True)
class Row:
    """What one kind of fault did."""

    name: str
    recoveries: list[int] = field(default_factory=list)
    times: int = 0
    lost: int = 0
    after_stop: int = 0
    in_flight: int = 0
    duplicates: int = 0

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        median = f"{statistics.median(self.recoveries) / 1000:.1f} s" if self.recoveries else ""
        longest = f"{max(self.recoveries) / 1000:.1f} s" if self.recoveries else ""
        counted = (self.lost, self.after_stop, self.in_flight, self.duplicates)
        return (self.name, str(self.times), median, longest, *map(str, counted))


def rows(faults: Sequence[Fault], verdict: Verdict) -> list[Row]:
    """One row for each kind of fault, and one for what came before the first. A finding is of the fault before it."""
    found: dict[str, Row] = {}
    ordered = sorted(faults, key=lambda fault: fault.at)
    for fault in ordered:
        row = found.setdefault(fault.name, Row(fault.name))
        row.times += 1
        if fault.recovered_ms is not None:
            row.recoveries.append(fault.recovered_ms)
    for finding in verdict.findings:
        before = [fault for fault in ordered if fault.at <= finding.at]
        name = before[-1].name if before else "no fault"
        row = found.setdefault(name, Row(name))
        row.lost += finding.kind == "lost"
        row.after_stop += finding.kind == "after_stop"
        row.in_flight += finding.kind == "in_flight"
        row.duplicates += finding.kind in {"duplicate", "unexplained_duplicate"}
    return list(found.values())


def show(found: Iterable[Row], memory: dict[str, tuple[int, int, int]], notes: Sequence[str], to: Path) -> None:
    """Print the tables and write them to a file. `memory` is first, most and last in bytes by process."""
    console = Console(highlight=False, width=140)
    table = Table(title="Faults and what they did")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number == 0 else "right")
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    for row in found:
        table.add_row(*row.cells())
        lines.append("| " + " | ".join(row.cells()) + " |")
    console.print(table)
    lines += ["", "| process | memory at the start | most | at the end |", "|---|---:|---:|---:|"]
    grid = Table(title="Resident memory, MiB")
    for column in ("process", "start", "most", "end"):
        grid.add_column(column, justify="left" if column == "process" else "right")
    for name, sizes in sorted(memory.items()):
        cells = [f"{size / 2**20:.0f}" for size in sizes]
        grid.add_row(name, *cells)
        lines.append(f"| {name} | " + " | ".join(f"{cell} MiB" for cell in cells) + " |")
    console.print(grid)
    lines.append("")
    for note in notes:
        console.print(note)
        lines.append(f"- {note}")
    to.write_text("\n".join(lines) + "\n", encoding="utf-8")


def summarised(samples: dict[str, list[int]]) -> dict[str, tuple[int, int, int]]:
    """First, most and last of each process; the ends are means of three samples, for one alone is an accident."""
    found: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for name, values in samples.items():
        if len(values) >= 6:
            found[name] = (sum(values[:3]) // 3, max(values), sum(values[-3:]) // 3)
    return dict(found)
