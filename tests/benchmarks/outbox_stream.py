"""A steady stream of rows through a relay, timed from the commit to a consumer of the topic."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from schemas.topics import NOTIFICATIONS
from tests.benchmarks.bench import Bench, Process
from tests.benchmarks.harness import percentile
from tests.benchmarks.outbox_rows import BARE_TABLE, KIND
from tests.support.eventually import eventually

PER_SECOND = 500
IDLE_SECONDS = 5.0
SETTLE_SECONDS = 2.0
LATE_SECONDS = 15.0


@dataclass(frozen=True)
class Stream:
    """One run."""

    latencies_ms: tuple[float, ...]
    """From the answer to the commit until a consumer had the record."""
    cpu_percent: float
    idle_percent: float
    lost: int
    written_per_second: float

    def percentile(self, percent: float) -> float:
        """Of the latencies, in ms."""
        return percentile(self.latencies_ms, percent)

    def json(self) -> dict[str, Any]:
        """Without the single latencies."""
        shown = {f"p{p}": round(self.percentile(p), 2) for p in (50, 95, 99, 99.9, 100)}
        return shown | {
            "cpu_percent": self.cpu_percent,
            "idle_percent": self.idle_percent,
            "lost": self.lost,
            "written_per_second": self.written_per_second,
        }


def stream(bench: Bench, seconds: float, *, ours: bool) -> Stream:
    """Write for so many seconds, through the relay or the bare loop."""
    with bench.database([KIND]) as url, bench.topics() as naming:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(BARE_TABLE)
        topic = naming(NOTIFICATIONS)
        settings = {"kafka": bench.kafka, "database_url": url, "topic": topic, "poll_seconds": 0.005}
        relay = bench.service("outbox", naming, url) if ours else bench.module("tests.benchmarks.outbox_bare", settings)
        with relay as worker:
            return measured(bench, url, topic, worker, seconds, ours=ours)


def measured(bench: Bench, url: str, topic: str, worker: Process, seconds: float, *, ours: bool) -> Stream:
    """Write for so many seconds what a running worker carries to the topic: to `rung.outbox`, or to the bare table."""
    with Arrivals(bench, topic) as arrivals:
        time.sleep(SETTLE_SECONDS)
        idle = _cpu_percent(worker, IDLE_SECONDS)
        return _measure(bench, url, worker, arrivals, seconds, ours=ours, idle=idle)


def _measure(
    bench: Bench, url: str, worker: Process, arrivals: Arrivals, seconds: float, *, ours: bool, idle: float
) -> Stream:
    times = bench.folder / f"commits-{time.monotonic_ns()}.json"
    settings = {"database_url": url, "seconds": seconds, "per_second": PER_SECOND, "ours": ours, "times": str(times)}
    before, started = worker.cpu_seconds, time.monotonic()
    with bench.module("tests.benchmarks.outbox_writer", settings) as writer:
        writer.wait(seconds + 60)
    cpu = 100 * (worker.cpu_seconds - before) / (time.monotonic() - started)
    commits: list[int] = json.loads(Path(times).read_text())
    with contextlib.suppress(AssertionError):
        # What does not come in time is lost, and counted so.
        eventually(lambda: len(arrivals.at_ns) >= len(commits), LATE_SECONDS, 0.05)
    worker.check()
    late = tuple((arrivals.at_ns[n] - at) / 1e6 for n, at in enumerate(commits) if n in arrivals.at_ns)
    return Stream(late, cpu, idle, len(commits) - len(late), len(commits) / seconds)


def _cpu_percent(worker: Process, seconds: float) -> float:
    before, started = worker.cpu_seconds, time.monotonic()
    time.sleep(seconds)
    return 100 * (worker.cpu_seconds - before) / (time.monotonic() - started)


class Arrivals:
    """When each record was there for a consumer, by the number in its dedup key: nanoseconds of the wall clock.

    What the topic has already is not looked at.
    """

    def __init__(self, bench: Bench, topic: str) -> None:
        self.at_ns: dict[int, int] = {}
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bench.kafka,
                "group.id": "not-used",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 1_000,
            }
        )
        self._consumer.assign([TopicPartition(*place, end) for place, end in bench.offsets([topic]).items()])
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                value = message.value()
                assert isinstance(value, bytes)
                self.at_ns.setdefault(int(json.loads(value)["dedup_key"]), time.time_ns())

    def __enter__(self) -> Arrivals:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()
