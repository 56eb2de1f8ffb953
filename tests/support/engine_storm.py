"""Storms over the engines: a fleet of processors, or of plain Faust, that counts what it is fed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Message

from deploy.topics import ensure_topics
from schemas import records as r
from schemas.topics import DELIVERY_EVENTS, NOTIFICATIONS, RESOLUTIONS, Naming
from tests.support import plain_faust
from tests.support.counted import Counted, Outputs, Verdict, judge
from tests.support.engine import LADDERS, ROOT, notify, raw
from tests.support.engine_process import Arguments
from tests.support.kafka import create_topics, produce
from tests.support.storm import Fleet, settle, storm

PEOPLE = [f"person-{i}" for i in range(200)]
SESSION_SECONDS = 6.0


class Feed:
    """Puts a notification and a resolution for each person in, so many a second."""

    def __init__(self, bootstrap: str, topics: tuple[str, ...], per_second: float) -> None:
        self._bootstrap = bootstrap
        self._topics = topics
        self._per_second = per_second
        self._started = time.monotonic()
        self._number = 0
        self.sent: Counter[bytes] = Counter()

    def __call__(self) -> None:
        """Put in what is due by now."""
        due = round((time.monotonic() - self._started) * self._per_second / len(self._topics)) - self._number
        batches: dict[str, list[Any]] = {topic: [] for topic in self._topics}
        for number in range(self._number, self._number + due):
            person, key = PEOPLE[number % len(PEOPLE)], f"k{number}"
            records = (
                raw(notify(person, key), f"n|{number}"),
                raw(r.Resolve(recipient=person, dedup_key=key, resolution="paid"), f"r|{number}"),
            )
            for topic, record in zip(self._topics, records, strict=False):
                batches[topic].append(record)
                self.sent[person.encode()] += 1
        self._number += due
        for topic, batch in batches.items():
            if batch:
                produce(self._bootstrap, topic, batch, timeout=60)


class Storm:
    """One fleet over one set of topics."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path, partitions: int = 4) -> None:
        """Create the topics."""
        self.bootstrap = bootstrap
        self.folder = folder
        self.naming = Naming(prefix)
        self.partitions = partitions
        ensure_topics({"bootstrap.servers": bootstrap}, self.naming, partitions=partitions)
        self.inputs: tuple[str, ...] = (self.naming(NOTIFICATIONS), self.naming(RESOLUTIONS))
        self.output = self.naming(DELIVERY_EVENTS)
        self.understand = _event

    @contextmanager
    def processors(self, size: int, **options: Any) -> Iterator[Fleet]:
        """A fleet of processors with the decision that counts; `options` are fields of `engine_process.Arguments`."""

        def launch(number: int) -> subprocess.Popen[bytes]:
            arguments = Arguments(
                bootstrap=self.bootstrap,
                prefix=self.naming.prefix,
                state_dir=str(self.folder / "state"),
                instance_id=str(number),
                **{"decision": "count", "ladders": LADDERS, "session_seconds": SESSION_SECONDS, **options},
            )
            return self._start("tests.support.engine_process", arguments, number)

        yield from self._fleet(launch, size)

    @contextmanager
    def plain(self, size: int, **options: Any) -> Iterator[Fleet]:
        """A fleet of plain Faust that counts one of the inputs."""
        target = f"{self.naming.prefix}counts"
        create_topics(self.bootstrap, {target: self.partitions})
        self.inputs, self.output, self.understand = self.inputs[:1], target, _plain

        def launch(number: int) -> subprocess.Popen[bytes]:
            arguments = plain_faust.Arguments(
                bootstrap=self.bootstrap,
                group=f"{self.naming.prefix}plain",
                source=self.inputs[0],
                target=target,
                state_dir=str(self.folder / f"plain-{number}"),
                partitions=self.partitions,
                **options,
            )
            return self._start("tests.support.plain_faust", arguments, number)

        yield from self._fleet(launch, size)

    def blow(
        self,
        fleet: Fleet,
        faults: str,
        *,
        every: float = 3.0,
        per_second: float = 1_500,
        limit: float = 90.0,
        seed: int,
        others: Mapping[str, Callable[[], object]] | None = None,
    ) -> Verdict:
        """Let faults come over a fleet that works, and judge what it has counted.

        Args:
            fleet: the processes.
            faults: see `storm`.
            every: seconds between two faults.
            per_second: records that are put in.
            limit: how long the rest may take when the storm is over, in seconds.
            seed: of whom the faults hit.
            others: see `storm`.
        """
        feed = Feed(self.bootstrap, self.inputs, per_second)
        outputs = Outputs(self.bootstrap, self.output, self.understand)
        try:
            # A storm over processes that have not begun yet hits nothing.
            assert settle(fleet, lambda: self._works(feed, outputs), 60), self.logs()
            storm(fleet, faults, every, feed, seed, others or {})
            total = feed.sent.total()
            settle(fleet, lambda: outputs.read() >= total, limit)
            outputs.read()
            return judge(feed.sent, outputs.found)
        finally:
            outputs.close()

    def logs(self) -> str:
        """The ends of what the processes wrote."""
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-3000:]}" for log in self.folder.glob("*.log"))

    def _works(self, feed: Feed, outputs: Outputs) -> bool:
        feed()
        return outputs.read() > 0

    def _fleet(self, launch: Any, size: int) -> Iterator[Fleet]:
        fleet = Fleet(launch, size)
        try:
            yield fleet
        finally:
            fleet.close()

    def _start(self, module: str, arguments: msgspec.Struct, number: int) -> subprocess.Popen[bytes]:
        with (self.folder / f"{number}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, msgspec.json.encode(arguments).decode()],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            )


def _event(message: Message) -> Counted:
    """What a processor wrote."""
    event = msgspec.json.decode(message.value() or b"", type=r.DeliveryEvent)
    record = dict(message.headers() or ())["ce_id"]
    return Counted(message.key() or b"", bytes(record or b"").decode(), event.attempt or 0)


def _plain(message: Message) -> Counted:
    """What plain Faust wrote."""
    count, record = (message.value() or b"").decode().split(" ")
    return Counted(message.key() or b"", record, int(count))
