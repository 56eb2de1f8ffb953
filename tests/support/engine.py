"""What the engines' contract suite drives: one interface over the memory engine and over a processor on Kafka."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import msgspec

from deploy.topics import ensure_topics
from processor.engine.memory import MemoryEngine
from processor.engine.port import OutputRecord
from schemas import records as r
from schemas.codec import AnyRecord, encode, encode_key
from schemas.envelope import Envelope, Headers, to_headers
from schemas.state import Ladder, LadderStep
from schemas.topics import Naming, Topic
from tests.support.engine_process import Arguments
from tests.support.engine_script import count
from tests.support.kafka import Record, produce, read_all

ROOT = Path(__file__).resolve().parents[2]
LADDERS = {"payment": Ladder(kind="payment", steps=(LadderStep(channel="email", after_ms=0, template="payment"),))}
NAMESPACE = UUID(int=1)
RawRecord = tuple[bytes | None, bytes | None, Mapping[str, str | bytes]]


def raw(record: AnyRecord, ce_id: str, record_type: str | None = None) -> RawRecord:
    """A record as it lies in a topic: key, value, headers."""
    assert not isinstance(record, r.DeliveryEvent)
    headers = to_headers(Envelope(ce_id, record_type or record.TYPE, "/test", 1_700_000_000_000))
    return encode_key(record.recipient), encode(record), dict(headers)


def notify(recipient: str, key: str, **data: object) -> r.Notify:
    """A notification of the one kind that has a ladder."""
    identity = uuid5(NAMESPACE, f"{recipient}|{key}")
    return r.Notify(notification_id=identity, recipient=recipient, kind="payment", dedup_key=key, data=data)


class Written(msgspec.Struct, frozen=True):
    """One output record."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers

    def header(self, name: str) -> str | None:
        """The last header of this name as text."""
        found = [value.decode() for known, value in self.headers if known == name]
        return found[-1] if found else None

    @property
    def event(self) -> r.DeliveryEvent:
        """The value as a delivery event."""
        assert self.value is not None
        return msgspec.json.decode(self.value, type=r.DeliveryEvent)


class EngineUnderTest(ABC):
    """An engine with the decision `engine_script.count` and the ladders `LADDERS`."""

    @abstractmethod
    def send(self, topic: Topic, records: Sequence[RawRecord]) -> None:
        """Put records into an input topic, in this order."""

    @abstractmethod
    def written(self, topic: Topic, at_least: int) -> list[Written]:
        """All that was written to a topic so far, each partition in order; waits until it is `at_least` so many."""

    @abstractmethod
    def restart(self, *, lose_disk: bool = False) -> None:
        """Stop in order and start again."""

    def send_records(self, topic: Topic, records: Iterable[tuple[AnyRecord, str]]) -> None:
        """Put records with their `ce_id`s into an input topic."""
        self.send(topic, [raw(record, ce_id) for record, ce_id in records])


class MemoryUnderTest(EngineUnderTest):
    """The memory engine."""

    def __init__(self) -> None:
        """Start with no state."""
        self.engine = MemoryEngine(count, LADDERS)
        self._earlier: list[OutputRecord] = []

    def send(self, topic: Topic, records: Sequence[RawRecord]) -> None:
        """See the base class."""
        for key, value, headers in records:
            pairs = [(name, text.encode() if isinstance(text, str) else text) for name, text in headers.items()]
            self.engine.feed(topic, key, value, list(pairs))

    def written(self, topic: Topic, at_least: int) -> list[Written]:
        """See the base class."""
        records = [*self._earlier, *(written.record for written in self.engine.outputs)]
        found = [Written(o.topic.name, o.key, o.value, o.headers) for o in records if o.topic is topic]
        assert len(found) >= at_least, f"{topic.name}: {len(found)} records, not {at_least}"
        return found

    def restart(self, *, lose_disk: bool = False) -> None:
        """See the base class; there is no disk."""
        self._earlier += [written.record for written in self.engine.outputs]
        self.engine = MemoryEngine(count, LADDERS, start=self.engine.now, states=self.engine.states)


class KafkaUnderTest(EngineUnderTest):
    """A processor in a process of its own, on a real Kafka."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path, *, partitions: int = 2, **options: Any) -> None:
        """Create the topics; `start` starts the process. `options` are fields of `engine_process.Arguments`."""
        self.bootstrap = bootstrap
        self.naming = Naming(prefix)
        self.folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._log_before = 0
        ensure_topics({"bootstrap.servers": bootstrap}, self.naming, partitions=partitions)

    @property
    def state_dir(self) -> Path:
        """Where the process keeps its local state."""
        return self.folder / "state"

    @property
    def log(self) -> str:
        """What the processes wrote to stderr and stdout."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def has_started(self) -> bool:
        """Whether the process that was started last has come through its imports and says that it works."""
        return "processor_started" in self.log[self._log_before :]

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running process."""
        assert self._process is not None, "the processor was not started"
        return self._process

    def start(self, **override: Any) -> None:
        """Start the process; it may take a moment until it processes. `override` wins over the options."""
        arguments = Arguments(
            bootstrap=self.bootstrap,
            prefix=self.naming.prefix,
            state_dir=str(self.state_dir),
            **{"decision": "count", "ladders": LADDERS, **self._options, **override},
        )
        with (self.folder / "log").open("ab") as log:
            self._log_before = len(self.log)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.engine_process", msgspec.json.encode(arguments).decode()],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            )

    def kill(self) -> None:
        """End the process as a crash would."""
        self.process.kill()
        self.process.wait()
        self._process = None

    def written_now(self, topic: Topic) -> list[Written]:
        """All that lies in a topic now."""
        return [_written(topic, record) for record in read_all(self.bootstrap, self.naming(topic))]

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = 15.0) -> int:
        """Ask the process to end and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout)

    def close(self) -> None:
        """Leave nothing running."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def send(self, topic: Topic, records: Sequence[RawRecord]) -> None:
        """See the base class."""
        produce(self.bootstrap, self.naming(topic), records)

    def written(self, topic: Topic, at_least: int, timeout: float = 60.0) -> list[Written]:
        """See the base class.

        Raises:
            RuntimeError: the process ended with an error meanwhile.
        """

        def enough(found: list[Record]) -> bool:
            if self._process is not None and self._process.poll() not in (None, 0):
                raise RuntimeError(f"the processor ended with {self._process.returncode}: {self.log[-3000:]}")
            return len(found) >= at_least

        try:
            records = read_all(self.bootstrap, self.naming(topic), enough, timeout)
        except AssertionError as error:
            raise AssertionError(f"{str(error)[:300]}\n{self.log[-3000:]}") from None
        return [_written(topic, record) for record in records]

    def restart(self, *, lose_disk: bool = False) -> None:
        """See the base class."""
        assert self.stop() == 0, self.log[-3000:]
        if lose_disk:
            shutil.rmtree(self.state_dir)
        self.start()


StartOnKafka = Callable[..., KafkaUnderTest]
"""What the fixture `on_kafka` is: starts a processor; the arguments are fields of `engine_process.Arguments`."""


def _written(topic: Topic, record: Record) -> Written:
    headers = [(name, value or b"") for name, value in record.headers]
    return Written(topic.name, record.key, record.value, headers)
