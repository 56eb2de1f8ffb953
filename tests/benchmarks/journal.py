"""The journal: how fast it writes a backlog of `delivery-events`, beside a bare COPY of the same rows."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from relay.journal.events import COLUMNS
from schemas.topics import Naming
from tests.benchmarks import journal_rows
from tests.benchmarks.bench import Bench, Drained, Process, drained
from tests.benchmarks.harness import Must, Row, take_turns

EVENTS = 200_000
BLOCK = 1 << 16
_COUNT = "SELECT coalesce(sum(next_offset), 0)::bigint FROM rung.journal_offset"


def drain(bench: Bench) -> Iterable[Row]:
    """200,000 events from Kafka to their rows, and COPY of those rows as they came out, from a file in one go."""
    total = bench.size(EVENTS, 2_000)
    file = bench.folder / "rows.copy"
    with bench.topics() as naming:
        journal_rows.publish(bench.kafka, naming, total)
        _export(bench, naming, total, file)
        copied, ours = take_turns(
            bench.rounds, lambda: _copy(bench, file, total), lambda: _journal(bench, naming, total)
        )
    file.unlink()
    cpu = tuple(round(run.cpu_us, 1) for run in ours)
    yield Row(
        "journal",
        f"drain of {total:,} events",
        "events/s",
        tuple(run.per_second for run in ours),
        tuple(copied),
        must=Must(0.3),
        notes="baseline: COPY of the same rows into the same table with its indexes, by one connection from a file",
        raw={"cpu_us_per_event": cpu},
    )
    yield Row("journal", "processor time", "µs/event", cpu, (), "lower", notes="of the journal's process")


def _journal(bench: Bench, naming: Naming, total: int) -> Drained:
    with bench.database() as url, bench.service("journal", naming, url, ready=False) as worker:
        return _written(url, total, worker)


def _written(url: str, total: int, worker: Process, seconds: float = 600) -> Drained:
    """From the first event that is written to the last."""
    with psycopg.connect(url, autocommit=True) as connection:

        def count() -> int:
            row = connection.execute(_COUNT).fetchone()
            return int(row[0]) if row else 0

        return drained(count, total, [worker], seconds)


def _export(bench: Bench, naming: Naming, total: int, file: Path) -> None:
    """The rows as the journal wrote them, in the order in which it did."""
    with bench.database() as url:
        with bench.service("journal", naming, url, ready=False) as worker:
            _written(url, total, worker)
        query = f"COPY (SELECT {', '.join(COLUMNS)} FROM rung.delivery_event ORDER BY ctid) TO STDOUT"
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            _save(cursor, query, file)


def _save(cursor: psycopg.Cursor[Any], query: str, file: Path) -> None:
    with cursor.copy(query.encode()) as copy, file.open("wb") as out:
        for block in copy:
            out.write(block)


@contextlib.contextmanager
def _partitioned(bench: Bench) -> Iterator[str]:
    """An empty journal with its day partitions, as the service makes them at its start."""
    with bench.database() as url, bench.topics() as naming:
        with bench.service("journal", naming, url):
            pass
        yield url


def _copy(bench: Bench, file: Path, total: int) -> float:
    """Rows per second of one COPY in one transaction."""
    with _partitioned(bench) as url, psycopg.connect(url) as connection:
        started = time.monotonic()
        with connection.cursor() as cursor, cursor.copy(_COPY_IN) as copy, file.open("rb") as rows:
            while block := rows.read(BLOCK):
                copy.write(block)
        connection.commit()
        return total / (time.monotonic() - started)


_COPY_IN = f"COPY rung.delivery_event ({', '.join(COLUMNS)}) FROM STDIN".encode()
