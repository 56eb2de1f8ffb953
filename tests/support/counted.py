"""How many records of each key a program has counted, by what it wrote: for storms over engines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition


class Counted(NamedTuple):
    """One output."""

    key: bytes
    record: str
    """Which input it came from."""
    number: int
    """The key's inputs so far, this one included."""


@dataclass
class Outputs:
    """Follows a topic; call `read` again and again."""

    bootstrap: str
    topic: str
    understand: Callable[[Message], Counted]
    found: list[Counted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "not-used",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        partitions = self._consumer.list_topics(self.topic, timeout=10).topics[self.topic].partitions
        self._consumer.assign([TopicPartition(self.topic, partition, 0) for partition in partitions])
        self.records: set[str] = set()
        """The inputs that were counted."""

    def read(self) -> int:
        """Read what is there; returns how many inputs were counted so far."""
        while messages := self._consumer.consume(5_000, 0.2):
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                counted = self.understand(message)
                self.found.append(counted)
                self.records.add(counted.record)
        return len(self.records)

    def close(self) -> None:
        """Stop following."""
        self._consumer.close()


@dataclass(frozen=True)
class Verdict:
    """What became of a number of records."""

    sent: int
    lost: int
    """Records that were not counted, or not in the time that there was."""
    repeated: int
    """How often a record was counted once more."""
    wrong: int
    """Keys whose counts are no row without a gap and without a repeat."""

    @property
    def exact(self) -> bool:
        """Each record was counted once, and each key's in one row."""
        return self.sent > 0 and self.lost == self.repeated == self.wrong == 0


def judge(sent: Counter[bytes], outputs: Iterable[Counted]) -> Verdict:
    """Judge outputs, in the order in which they were written for each key, of so many records of each key."""
    rows: dict[bytes, list[int]] = defaultdict(list)
    times: Counter[str] = Counter()
    for key, record, number in outputs:
        rows[key].append(number)
        times[record] += 1
    wrong = sum(rows[key] != list(range(1, number + 1)) for key, number in sent.items())
    return Verdict(sent.total(), sent.total() - len(times), times.total() - len(times), wrong)
