"""The table of a run, and its raw numbers beside it."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil
from rich.console import Console
from rich.table import Table

from deploy.local import jars
from tests.benchmarks.harness import Row, Spread

LIBRARIES = ("quixstreams", "psycopg", "msgspec", "confluent-kafka")


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    load = os.getloadavg()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_before": [round(value, 2) for value in load],
        "python": platform.python_version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "kafka": _kafka(),
        **{name: version(name) for name in LIBRARIES},
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _kafka() -> str:
    lines = Path(jars.__file__).with_name("jars.lock").read_text().splitlines()
    return next((line.split()[0] for line in lines if ":kafka_2.13:" in line or "kafka_2.13" in line), "")


def show(rows: Sequence[Row], about: dict[str, Any], console: Console | None = None) -> None:
    """Print one table: every figure as least / median / most over the rounds."""
    console = console or Console(width=max(160, Console().width))
    table = Table(title=_line(about), title_justify="left")
    for name, justify in _COLUMNS:
        table.add_column(name, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)


_COLUMNS: tuple[tuple[str, Any], ...] = (
    ("part", "left"),
    ("figure", "left"),
    ("unit", "left"),
    ("ours", "right"),
    ("baseline", "right"),
    ("ratio", "right"),
    ("must", "left"),
    ("", "left"),
    ("notes", "left"),
)


def _line(about: dict[str, Any]) -> str:
    libraries = ", ".join(f"{name} {about[name]}" for name in LIBRARIES)
    return (
        f"{about['cores']} cores of {about['cpu']}, {about['memory_gib']} GiB, load {about['load_before'][0]}; "
        f"Python {about['python']}, librdkafka {about['librdkafka']}, {libraries}; {about['at']}"
    )


def _cells(row: Row) -> tuple[str, ...]:
    verdict = {None: "", True: "kept", False: "[red]missed[/red]"}[row.kept]
    return (
        row.part,
        row.what,
        row.unit,
        spread(row.ours),
        spread(row.baseline),
        spread(row.ratios),
        "" if row.must is None else str(row.must),
        verdict,
        row.notes,
    )


def spread(values: Sequence[float]) -> str:
    """`least / median / most`, or the one value."""
    if not values:
        return ""
    found = Spread.of(values)
    if len(values) == 1:
        return _number(found.median)
    return " / ".join(map(_number, (found.low, found.median, found.high)))


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def save(rows: Sequence[Row], about: dict[str, Any], path: Path) -> None:
    """Write everything that was measured as JSON."""
    path.write_text(json.dumps({"machine": about, "rows": [row.json() for row in rows]}, indent=1, default=str) + "\n")


def markdown(rows: Sequence[Row], about: dict[str, Any]) -> str:
    """The table as it stands in the project's own pages, with the machine above it."""
    names = ["part and figure", "ours", "baseline", "ratio", "must", ""]
    lines = [_line(about), "", "| " + " | ".join(names) + " |", "|---|---:|---:|---:|---|---|"]
    for row in rows:
        part, what, unit, ours, baseline, ratio, must, _, _ = _cells(row)
        kept = {None: "", True: "kept", False: "**missed**"}[row.kept]
        lines.append(f"| {part}: {what}, {unit} | {ours} | {baseline} | {ratio} | {must} | {kept} |")
    return "\n".join(lines) + "\n"


def missed(rows: Sequence[Row]) -> list[Row]:
    """The rows whose bound is not kept."""
    return [row for row in rows if row.kept is False]


def warn(text: str) -> None:
    """A line for whoever watches the run."""
    print(text, file=sys.stderr, flush=True)
