"""The stage of a run: embedded Kafka and PostgreSQL, fresh topics and databases on them, services as processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from deploy.local import process
from deploy.local.ports import free_port
from deploy.local.stack import Stack
from deploy.readiness import Readiness
from deploy.topics import ensure_topics
from relay.outbox.kinds import publish_kinds
from relay.outbox.migrations import migrate
from schemas.topics import CATALOGUE, Naming
from tests.support import postgres
from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4
READY_SECONDS = 60.0
STOP_SECONDS = 20.0
LOOK_SECONDS = 0.05


class Process:
    """A running process that is measured from outside."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self.child = child
        self.log = log
        self._seen = psutil.Process(child.pid)

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far, of user and kernel."""
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    @property
    def rss_bytes(self) -> int:
        """Resident memory now."""
        return int(self._seen.memory_info().rss)

    def check(self) -> None:
        """Return while it runs.

        Raises:
            RuntimeError: it has ended; with the end of its log.
        """
        if (code := process.exit_code(self.child)) is not None:
            raise RuntimeError(f"a process ended with {process.describe(code)}:\n{process.tail(self.log)[-4000:]}")

    def wait(self, seconds: float) -> None:
        """Wait for its end with exit code 0. RuntimeError if that does not come."""
        code = process.wait(self.child, time.monotonic() + seconds)
        if code != 0:
            raise RuntimeError(f"a process did not end well ({code}):\n{process.tail(self.log)[-4000:]}")


@dataclass(frozen=True)
class Drained:
    """A topic that filled up."""

    records: int
    seconds: float
    cpu_seconds: float
    """Processor time of those who filled it."""
    waited_seconds: float = 0.0
    """How long the first record was waited for."""

    @property
    def per_second(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """Processor time per record, in microseconds."""
        return self.cpu_seconds / max(self.records, 1) * 1e6


def drained(count: Callable[[], int], total: int, workers: Sequence[Process], seconds: float) -> Drained:
    """Watch `workers` until `count` says `total`, from the first record that is seen to the last: the time that they
    take to start is not counted."""
    began = time.monotonic()
    deadline = began + seconds
    first: tuple[float, int, float] | None = None
    while time.monotonic() < deadline:
        for worker in workers:
            worker.check()
        now, found, cpu = time.monotonic(), count(), sum(w.cpu_seconds for w in workers)
        if found and first is None:
            first = (now, found, cpu)
        if found >= total and first is not None:
            return Drained(found - first[1], max(now - first[0], 1e-9), cpu - first[2], first[0] - began)
        time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"{count()} of {total} records after {seconds} s")


class Bench:
    """What a part of the benchmark gets."""

    def __init__(self, folder: Path, *, rounds: int = 3, scale: float = 1.0) -> None:
        """Describe a run; its servers live while it is entered. `scale` multiplies the sizes of the parts."""
        self.folder = folder
        self.rounds = rounds
        self.scale = scale
        self.stack = Stack(folder / "servers", heap="768m")
        self._number = 0
        self._admin: AdminClient | None = None

    def __enter__(self) -> Self:
        self.stack.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A client that outlives its broker asks for it for ever, and says so.
        self._admin = None
        self.stack.stop()

    @property
    def kafka(self) -> str:
        """Bootstrap servers."""
        return self.stack.kafka.bootstrap_servers

    def size(self, full: int, least: int = 1) -> int:
        """A part's size at this run's scale."""
        return max(least, round(full * self.scale))

    @contextlib.contextmanager
    def topics(self, partitions: int = PARTITIONS) -> Iterator[Naming]:
        """The whole catalogue of topics under a prefix of its own; deleted afterwards, with all else of that prefix."""
        naming = Naming(f"b{uuid.uuid4().hex[:8]}.")
        ensure_topics({"bootstrap.servers": self.kafka}, naming, partitions=partitions)
        names = [naming(topic) for topic in CATALOGUE]
        # A leader that is named may still refuse to be asked for its offsets.
        eventually(lambda: self.offsets(names), READY_SECONDS, describe="every topic tells its offsets")
        try:
            yield naming
        finally:
            admin = AdminClient({"bootstrap.servers": self.kafka})
            names = [name for name in admin.list_topics(timeout=30).topics if name.startswith(naming.prefix)]
            for future in admin.delete_topics(names, operation_timeout=30).values():
                future.result()

    @contextlib.contextmanager
    def database(self, kinds: Sequence[str] = ()) -> Iterator[str]:
        """The address of a migrated database of its own that knows these kinds; dropped afterwards."""
        server = self.stack.postgres.url("postgres")
        url = postgres.create_database(server)
        try:
            migrate(url)
            publish_kinds(url, kinds)
            yield url
        finally:
            postgres.drop_database(server, url)

    @contextlib.contextmanager
    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[Process]:
        """A process of its own, ended in order afterwards; its output goes to a log in the folder."""
        self._number += 1
        log = self.folder / f"{self._number:04}-{Path(command[2] if command[1:2] == ['-m'] else command[0]).name}.log"
        clean = {k: v for k, v in os.environ.items() if not k.startswith("RUNG_")}
        child = process.spawn(command, log=log, env={**clean, **(env or {})}, cwd=ROOT)
        try:
            yield Process(child, log)
        finally:
            process.end(child, timeout=STOP_SECONDS)

    def module(self, name: str, settings: Any) -> contextlib.AbstractContextManager[Process]:
        """`python -m NAME SETTINGS-AS-JSON` as a process: how baselines run."""
        return self.run([sys.executable, "-m", name, json.dumps(settings)])

    @contextlib.contextmanager
    def service(
        self,
        name: str,
        naming: Naming,
        database_url: str = "",
        env: Mapping[str, str] | None = None,
        *,
        instance: str = "",
        ready: bool = True,
        partitions: int = PARTITIONS,
    ) -> Iterator[Process]:
        """A service as production starts it (`rung NAME`); waits until it says that it is ready, unless told not to."""
        port = free_port()
        instance = instance or f"{name}-{uuid.uuid4().hex[:6]}"
        settings = {
            "RUNG_KAFKA": self.kafka,
            "RUNG_DATABASE_URL": database_url,
            "RUNG_TOPIC_PREFIX": naming.prefix,
            "RUNG_PARTITIONS": str(partitions),
            "RUNG_METRICS_PORT": str(port),
            "RUNG_INSTANCE_ID": instance,
            "RUNG_STATE_DIR": str(self.folder / "state" / instance),
            "RUNG_API_PORT": "0",
            "RUNG_LOG_LEVEL": "warning",
            **(env or {}),
        }
        with self.run([sys.executable, "-m", "deploy.cli", name], settings) as running:
            if ready:
                readiness = Readiness({name: f"http://127.0.0.1:{port}/metrics"})

                def look() -> bool:
                    running.check()
                    return not readiness.missing()

                eventually(look, READY_SECONDS, 0.05, describe=f"{name} is ready")
            yield running

    def ends(self, topics: Sequence[str]) -> int:
        """How many offsets these topics have given out in all partitions together, markers of transactions included."""
        return sum(self.offsets(topics).values())

    def offsets(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """The end of each partition."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.kafka})
        admin = self._admin
        known = admin.list_topics(timeout=30).topics
        wanted = {TopicPartition(t, p): OffsetSpec.latest() for t in topics for p in known[t].partitions}
        return {(tp.topic, tp.partition): f.result().offset for tp, f in admin.list_offsets(wanted).items()}

    def drained(self, topics: Sequence[str], total: int, workers: Sequence[Process], seconds: float = 900) -> Drained:
        """Watch `workers` fill topics up to `total` offsets, markers of transactions included."""
        return drained(lambda: self.ends(topics), total, workers, seconds)

    def audit(self, naming: Naming, database_url: str, *options: str) -> dict[str, Any]:
        """The report of `rung audit` on a system of this run; a part that ran the whole system shows it as a row."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("RUNG_")}
        settings = {
            "RUNG_KAFKA": self.kafka,
            "RUNG_DATABASE_URL": database_url,
            "RUNG_TOPIC_PREFIX": naming.prefix,
        }
        command = [sys.executable, "-m", "deploy.cli", "audit", "--json", *options]
        done = subprocess.run(
            command, env={**clean, **settings}, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"the audit could not judge: {done.stderr[-2000:]}")
        report: dict[str, Any] = json.loads(done.stdout)
        return report
