"""Rung's relay beside Debezium's outbox event router, on the same rows and servers; `DEBEZIUM.md` reads the figures.

Runs only if it is named: `make bench BENCH=debezium`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from schemas.topics import NOTIFICATIONS
from tests.benchmarks import debezium_jars
from tests.benchmarks.bench import Bench, Drained, drained
from tests.benchmarks.debezium_worker import DEFAULT, TUNED, connect, slot, use_logical_wal
from tests.benchmarks.harness import Must, Row, take_turns
from tests.benchmarks.outbox import BARE, bare_loop, relays
from tests.benchmarks.outbox_rows import KIND, faults, fill, filled
from tests.benchmarks.outbox_stream import Stream, measured, stream

ROWS = 300_000
WARM_UP_ROWS = 30_000
SETTINGS: Mapping[str, Mapping[str, str]] = {"default": DEFAULT, "tuned": TUNED}
NAMES = [f"Debezium {name}" for name in SETTINGS]
THEIRS = "what its slot kept; baseline: the bare loop of the same round, on the same server"
STREAM = "baseline: the bare loop, polling every 5 ms; until a consumer has the record"
DRAIN_SECONDS = 900.0


@dataclass(frozen=True)
class Drains:
    """Two backlogs, one after the other, by the same Java."""

    cold: Drained
    """By a process that has just been started."""
    warm: Drained
    """After it has done the first one: its code is compiled."""
    rss_bytes: int
    faults: Mapping[str, int] = field(default_factory=dict)


def compare(bench: Bench) -> Iterable[Row]:
    """The drain of a backlog and a steady stream: the bare loop, Rung's relay, and Debezium as it comes and tuned."""
    # What cannot be had is known before anything is measured.
    debezium_jars.worker_class_path()
    debezium_jars.plugins(bench.folder / "plugins")
    use_logical_wal(bench)
    yield from _drains(bench)
    yield from _streams(bench)


def _drains(bench: Bench) -> Iterable[Row]:
    rows = bench.size(ROWS, 2_000)
    left: list[dict[str, int]] = []
    with filled(bench, rows) as backlog:
        bare, ours, *theirs = take_turns(
            bench.rounds,
            lambda: bare_loop(bench, backlog, rows),
            lambda: relays(bench, backlog, rows, 1, left),
            *(partial(_drain, bench, rows, options) for options in SETTINGS.values()),
        )
    what = f"drain of {rows:,} rows"
    found: dict[str, list[Drains]] = dict(zip(NAMES, theirs, strict=True))
    runs: dict[str, list[Drained]] = {"Rung, one replica": ours}
    for name, drains in found.items():
        runs |= {f"{name}, cold": [run.cold for run in drains], f"{name}, warm": [run.warm for run in drains]}
    yield from _figures(what, runs, bare)
    for name, drains in found.items():
        yield _row(f"memory after both drains: {name}", "MiB", [run.rss_bytes / 2**20 for run in drains])
    yield from _faults(what, {"Rung": list(left)} | {name: [run.faults for run in d] for name, d in found.items()})


def _figures(what: str, runs: Mapping[str, Sequence[Drained]], bare: Sequence[Drained]) -> Iterable[Row]:
    for name, found in runs.items():
        notes = BARE if name.startswith("Rung") else THEIRS
        values = [[run.per_second for run in side] for side in (found, bare)]
        yield _row(f"{what}: {name}", "rows/s", *values, better="higher", notes=notes)
    for name, found in runs.items():
        values = [[run.cpu_us for run in side] for side in (found, bare)]
        notes = "of its process; the work of PostgreSQL and Kafka is not in it"
        yield _row(f"{what}, processor time: {name}", "µs/row", *values, notes=notes)
    for name, found in runs.items():
        values = [[run.waited_seconds for run in side] for side in (found, bare)]
        notes = "until the first record, from the start of the process; when warm, of the connector"
        yield _row(f"{what}, start: {name}", "s", *values, notes=notes)


def _faults(what: str, runs: Mapping[str, Sequence[Mapping[str, int]]]) -> Iterable[Row]:
    for name, found in runs.items():
        for fault in ("missing", "repeated", "out of order"):
            # Debezium promises "at least once": it may repeat what it had not yet reported when it was stopped.
            must = None if fault == "repeated" and name in NAMES else Must(most=0)
            yield _row(f"{what}, {fault}: {name}", "rows", [float(run[fault]) for run in found], must=must)


def _drain(bench: Bench, rows: int, options: Mapping[str, str]) -> Drains:
    with bench.database([KIND]) as url, slot(url), bench.topics() as naming:
        topic = naming(NOTIFICATIONS)
        fill(url, 1, rows)
        with connect(bench, naming, url, options) as worker:
            cold = bench.drained([topic], rows, [worker.process])
            worker.stop()
            fill(url, rows + 1, 2 * rows)
            before = bench.ends([topic])
            worker.resume()
            # Counted from what is there: it may repeat a few that it had not yet reported to its slot.
            warm = drained(lambda: bench.ends([topic]) - before, rows, [worker.process], DRAIN_SECONDS)
            rss = worker.process.rss_bytes
        return Drains(cold, warm, rss, faults(bench, topic, 2 * rows))


def _streams(bench: Bench) -> Iterable[Row]:
    seconds = max(3.0, 30 * bench.scale)
    bare, ours, *theirs = take_turns(
        bench.rounds,
        lambda: stream(bench, seconds, ours=False),
        lambda: stream(bench, seconds, ours=True),
        *(partial(_stream, bench, seconds, options) for options in SETTINGS.values()),
    )
    runs: dict[str, list[Stream]] = {"Rung": ours} | dict(zip(NAMES, theirs, strict=True))
    for percent in (50, 95, 99):
        for name, found in runs.items():
            values = [[run.percentile(percent) for run in side] for side in (found, bare)]
            yield _row(f"500 rows/s, commit to Kafka, p{percent}: {name}", "ms", *values, notes=STREAM)
    for name, found in runs.items():
        values = [[run.cpu_percent for run in side] for side in (found, bare)]
        yield _row(f"500 rows/s, processor: {name}", "% of a core", *values)
    for name, found in runs.items():
        values = [[run.idle_percent for run in side] for side in (found, bare)]
        yield _row(f"idle, processor: {name}", "% of a core", *values)
    for name, found in runs.items():
        yield _row(f"500 rows/s, lost: {name}", "rows", [float(run.lost) for run in found], must=Must(most=0))


def _stream(bench: Bench, seconds: float, options: Mapping[str, str]) -> Stream:
    with bench.database([KIND]) as url, slot(url), bench.topics() as naming:
        topic = naming(NOTIFICATIONS)
        with connect(bench, naming, url, options) as worker:
            # Java compiles what has run often: a stream is to meet a worker that has been at it for a while.
            rows = bench.size(WARM_UP_ROWS, 1_000)
            fill(url, 1, rows)
            bench.drained([topic], rows, [worker.process])
            return measured(bench, url, topic, worker.process, seconds, ours=True)


def _row(
    what: str,
    unit: str,
    ours: Sequence[float],
    baseline: Sequence[float] = (),
    *,
    better: Literal["higher", "lower"] = "lower",
    notes: str = "",
    must: Must | None = None,
) -> Row:
    return Row("debezium", what, unit, tuple(ours), tuple(baseline), better, must, notes)
