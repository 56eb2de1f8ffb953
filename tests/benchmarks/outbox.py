"""The outbox relay: how fast it drains a backlog, and how soon and how cheaply it publishes a steady stream."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

import psycopg

from schemas.topics import NOTIFICATIONS, RESOLUTIONS
from tests.benchmarks.bench import Bench, Drained
from tests.benchmarks.harness import Must, Row, take_turns
from tests.benchmarks.outbox_rows import copy_of, faults, filled
from tests.benchmarks.outbox_stream import Stream, stream

ROWS = 300_000
STATISTICS_SECONDS = 1.5
"""After so long a server process has told its statistics."""
_DEAD_TUPLES = """
SELECT coalesce(sum(n_dead_tup) FILTER (WHERE relname ~ '^outbox(_p[0-9]+)?$'), 0)::int,
       coalesce(sum(n_dead_tup) FILTER (WHERE relname !~ '^outbox(_p[0-9]+)?$'), 0)::int
FROM pg_stat_user_tables WHERE schemaname = 'rung'
"""
BARE = "SELECT by id, produce, flush per 2,000 rows; no bookkeeping, same producer settings and records"


def drain(bench: Bench) -> Iterable[Row]:
    """A backlog of 300,000 rows of 250 bytes: one replica and two, beside the bare loop."""
    rows = bench.size(ROWS, 2_000)
    state: dict[str, list[dict[str, int]]] = {"one": [], "two": []}
    with filled(bench, rows) as backlog:
        runs = take_turns(
            bench.rounds,
            lambda: bare_loop(bench, backlog, rows),
            lambda: relays(bench, backlog, rows, 1, state["one"]),
            lambda: relays(bench, backlog, rows, 2, state["two"]),
        )
    bare, one, two = ([run.per_second for run in found] for found in runs)
    cpu = [tuple(round(run.cpu_us, 1) for run in found) for found in runs]
    part, size = "outbox relay", f"drain of {rows:,} rows"
    raw = {"cpu_us_per_row": dict(zip(("bare", "one", "two"), cpu, strict=True))}
    yield Row(part, f"{size}, one replica", "rows/s", tuple(one), tuple(bare), must=Must(0.6), notes=BARE, raw=raw)
    yield Row(
        part, f"{size}, two replicas", "rows/s", tuple(two), tuple(one), must=Must(1.0), notes="baseline: one replica"
    )
    yield Row(part, "processor time, one replica", "µs/row", cpu[1], cpu[0], "lower", notes="of the relay's process")
    for name in ("dead tuples", "missing", "repeated", "out of order"):
        found = tuple(float(s[name]) for s in state["one"] + state["two"])
        yield Row(part, f"{name} after the drain", "rows", found, (), "lower", Must(most=0))


def bare_loop(bench: Bench, backlog: str, rows: int) -> Drained:
    """Drain a copy of the backlog through the bare loop."""
    with copy_of(bench, backlog) as url, bench.topics() as naming:
        topic = naming(NOTIFICATIONS)
        settings = {"kafka": bench.kafka, "database_url": url, "topic": topic, "poll_seconds": 0.005}
        with bench.module("tests.benchmarks.outbox_bare", settings) as worker:
            return bench.drained([topic], rows, [worker])


def relays(bench: Bench, backlog: str, rows: int, replicas: int, state: list[dict[str, int]]) -> Drained:
    """Drain a copy of the backlog through so many replicas; what is left behind is added to `state`."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(copy_of(bench, backlog))
        naming = stack.enter_context(bench.topics())
        with contextlib.ExitStack() as running:
            workers = [
                running.enter_context(bench.service("outbox", naming, url, ready=False)) for _ in range(replicas)
            ]
            done = bench.drained([naming(NOTIFICATIONS), naming(RESOLUTIONS)], rows, workers)
            time.sleep(STATISTICS_SECONDS)
            with psycopg.connect(url) as connection:
                row = connection.execute(_DEAD_TUPLES).fetchone()
            assert row is not None
        state.append({"dead tuples": row[0], "in its own tables": row[1], **faults(bench, naming(NOTIFICATIONS), rows)})
        return done


def steady(bench: Bench) -> Iterable[Row]:
    """500 rows/s, each committed by itself: how late they are, and what the relay costs, then and when idle."""
    seconds = max(3.0, 30 * bench.scale)
    bare, ours = take_turns(
        bench.rounds, lambda: stream(bench, seconds, ours=False), lambda: stream(bench, seconds, ours=True)
    )
    part, notes = "outbox relay", "baseline: the bare loop, polling every 5 ms; until a consumer has the record"
    for percent, most in ((50, 10.0), (95, 25.0), (99, None)):
        must = None if most is None else Must(most=most, of="value")
        yield Row(
            part,
            f"500 rows/s: commit to Kafka, p{percent}",
            "ms",
            _each(ours, percent),
            _each(bare, percent),
            "lower",
            must,
            notes,
            {"bare": [run.json() for run in bare], "ours": [run.json() for run in ours]} if percent == 50 else {},
        )
    cpu = tuple(run.cpu_percent for run in ours), tuple(run.cpu_percent for run in bare)
    yield Row(part, "500 rows/s: processor", "% of a core", *cpu, "lower", Must(most=20, of="value"))
    idle = tuple(run.idle_percent for run in ours), tuple(run.idle_percent for run in bare)
    yield Row(part, "idle: processor", "% of a core", *idle, "lower", Must(most=2, of="value"))
    lost = tuple(float(run.lost) for run in ours), tuple(float(run.lost) for run in bare)
    yield Row(part, "500 rows/s: rows lost", "rows", *lost, "lower", Must(most=0, of="value"))


def _each(runs: list[Stream], percent: int) -> tuple[float, ...]:
    return tuple(run.percentile(percent) for run in runs)
