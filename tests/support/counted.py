"""How many records of each key a program has counted, by what it wrote: for storms over engines."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicPartition


@dataclass
class Outputs:
    """Follows a topic; call `read` again and again."""

    bootstrap: str
    topic: str
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)

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

    def read(self) -> int:
        """Read what is there; returns how many records there were so far."""
        while messages := self._consumer.consume(5_000, 0.2):
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                self.keys.append(message.key() or b"")
                self.values.append(message.value() or b"")
        return len(self.keys)

    def close(self) -> None:
        """Stop following."""
        self._consumer.close()


@dataclass(frozen=True)
class Verdict:
    """What became of a number of records of each key."""

    short: int
    """Keys whose records were not all counted."""
    repeated: int
    """Records that were counted twice."""
    wrong: int
    """Keys whose counts are no row without a gap and without a repeat."""

    @property
    def exact(self) -> bool:
        """Each record was counted once, in one row."""
        return self == Verdict(0, 0, 0)


def judge(sent: Counter[bytes], counts: list[tuple[bytes, int]]) -> Verdict:
    """Judge the counts, in the order in which they were written for each key."""
    rows: dict[bytes, list[int]] = defaultdict(list)
    for key, count in counts:
        rows[key].append(count)
    short = sum(max(rows[key], default=0) < number for key, number in sent.items())
    repeated = sum(max(0, max(rows[key], default=0) - number) for key, number in sent.items())
    wrong = sum(rows[key] != list(range(1, number + 1)) for key, number in sent.items())
    return Verdict(short, repeated, wrong)
