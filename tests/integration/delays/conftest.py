"""Delayers to test: in a thread, or as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from deploy.topics import ensure_topics
from relay.delays.config import DelaysConfig
from relay.delays.service import run
from schemas.topics import Naming, tier_for
from tests.support.kafka import Record, produce, read_all

PROGRAM = """
import sys, threading
from prometheus_client import CollectorRegistry
from deploy.signals import stop_on_signals
from relay.delays.config import DelaysConfig
from relay.delays.service import run
from schemas.topics import Naming

kafka, prefix, instance = sys.argv[1:]
stop = threading.Event()
stop_on_signals(stop)
config = DelaysConfig({"bootstrap.servers": kafka}, instance, Naming(prefix), session_timeout_seconds=2.0)
run(config, stop, CollectorRegistry())
"""


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


@dataclass
class Delayed:
    """The topics of one test, and what was put into them."""

    kafka: str
    prefix: str
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    threads: list[Running] = field(default_factory=list)

    def put(self, waits: list[int], tier: str | None = None, key: Callable[[int], str] = "r{}".format) -> list[int]:
        """Append a record per wait (milliseconds from now), by default to its tier as the processor would. The value is
        unique: number and moment. Returns the moments."""
        base = now_ms()
        rows: dict[str, list[tuple[str, bytes, dict[str, str]]]] = {}
        for number, wait in enumerate(waits):
            due = base + wait
            topic = f"delay.{tier}" if tier else tier_for(wait).topic
            row = (key(number), f"{number}:{due}".encode(), {"ce_id": f"id{number}", "due_at": str(due)})
            rows.setdefault(topic, []).append(row)
        for topic, records in rows.items():
            produce(self.kafka, self.prefix + topic, records)
        return [base + wait for wait in waits]

    def due(self, count: int | None = None, timeout: float = 30.0) -> list[Record]:
        """What lies in `due`, when there are `count` records at least."""
        return read_all(self.kafka, f"{self.prefix}due", count, timeout=timeout)

    def process(self, instance: str = "a") -> subprocess.Popen[bytes]:
        """Start a delayer as a process."""
        log = (self.folder / f"delays-{len(self.processes)}.log").open("wb")
        command = [sys.executable, "-c", PROGRAM, self.kafka, self.prefix, instance]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        self.processes.append(process)
        return process

    def thread(self, instance: str = "a", **settings: float) -> Running:
        """Start a delayer in a thread."""
        config = DelaysConfig(
            {"bootstrap.servers": self.kafka},
            instance,
            Naming(self.prefix),
            **({"session_timeout_seconds": 2.0} | settings),  # type: ignore[arg-type]
        )
        running = Running(config)
        self.threads.append(running)
        return running

    def close(self) -> None:
        """End what was started."""
        for running in self.threads:
            running.stop()
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait(10)


class Running:
    """A delayer in a thread, and its metrics."""

    def __init__(self, config: DelaysConfig) -> None:
        self.registry = CollectorRegistry()
        self.error: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(config,), name=f"delays-{config.instance_id}")
        self._thread.start()

    def _run(self, config: DelaysConfig) -> None:
        try:
            run(config, self._stop, self.registry)
        except Exception as error:
            self.error = error

    def value(self, name: str, **labels: str) -> float:
        """A sample of its metrics; 0 if there is none."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def stop(self) -> None:
        """Stop in order."""
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def delayed(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Delayed]:
    """The catalogue's topics with two partitions each, under a prefix of the test's own."""
    ensure_topics({"bootstrap.servers": kafka}, Naming(topic_prefix), partitions=2)
    test = Delayed(kafka, topic_prefix, tmp_path)
    yield test
    test.close()


def lateness(records: list[Record]) -> list[int]:
    """By how many milliseconds each record came after its moment, rising."""
    return sorted(record.timestamp - int(record.header("due_at") or 0) for record in records)
