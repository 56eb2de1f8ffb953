"""Topics, records in and records out, the way the services do it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PRODUCER_SETTINGS: dict[str, Any] = {
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 0,
    # The topics decide how large a record may be, and not this client.
    "message.max.bytes": 8 * 1024 * 1024,
}


@dataclass(frozen=True)
class Topic:
    """What to create: a number of partitions and the topic's own settings."""

    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """One record as it lies in the topic; `timestamp` is in milliseconds since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def header(self, name: str) -> str | None:
        """The last header of this name as text, or None."""
        for known, value in reversed(self.headers):
            if known == name:
                return None if value is None else value.decode()
        return None


def create_topics(bootstrap: str, topics: Mapping[str, Topic | int] | Iterable[str], timeout: float = 15.0) -> None:
    """Create topics and return when they can be used.

    `topics` maps names to a `Topic` or a number of partitions; bare names get one partition each.
    """
    wanted = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
    specs = {name: spec if isinstance(spec, Topic) else Topic(spec) for name, spec in wanted.items()}
    if not specs:
        return
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [
        NewTopic(name, num_partitions=s.partitions, replication_factor=1, config=dict(s.config))
        for name, s in specs.items()
    ]
    for future in admin.create_topics(new, operation_timeout=timeout, request_timeout=timeout).values():
        future.result()
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        known = admin.list_topics(timeout=timeout).topics
        # A partition without a leader yet refuses its first records.
        if all(
            name in known
            and len(known[name].partitions) == spec.partitions
            and all(partition.leader >= 0 for partition in known[name].partitions.values())
            for name, spec in specs.items()
        ):
            return
        time.sleep(0.02)
    raise AssertionError(f"topics {sorted(specs)} have no leaders after {timeout} s")


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[
        tuple[str | bytes | None, bytes | None] | tuple[str | bytes | None, bytes | None, Mapping[str, str | bytes]]
    ],
    timeout: float = 15.0,
    partition: int | None = None,
    partitioner: str = PRODUCER_SETTINGS["partitioner"],
) -> list[Record]:
    """Write `(key, value)` or `(key, value, headers)` records and return them as they were acknowledged, in order.

    Raises:
        AssertionError: one was refused or not acknowledged in time.
    """
    acknowledged: dict[int, Record] = {}
    refused: list[str] = []

    def confirm(index: int, headers: tuple[tuple[str, bytes | None], ...]) -> Callable[[object, Message], None]:
        def on_delivery(error: object, message: Message) -> None:
            if error is not None:
                refused.append(str(error))
            else:
                # An acknowledgement carries everything but the headers.
                acknowledged[index] = replace(_record(message), headers=headers)

        return on_delivery

    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER_SETTINGS, "partitioner": partitioner})
    where = {} if partition is None else {"partition": partition}
    for index, (key, value, *rest) in enumerate(records):
        given = rest[0] if rest else {}
        headers = tuple((name, text.encode() if isinstance(text, str) else text) for name, text in given.items())
        producer.produce(
            topic, value=value, key=key, headers=list(headers), on_delivery=confirm(index, headers), **where
        )
    waiting = producer.flush(timeout)
    assert not refused, f"{topic}: {refused[0]} ({len(refused)} refused)"
    assert waiting == 0, f"{topic}: {waiting} records were not acknowledged within {timeout} s"
    return [record for _, record in sorted(acknowledged.items())]


def produce_compressed(
    bootstrap: str, topic: str, key: bytes, value: bytes, headers: Mapping[str, bytes], partition: int = 0
) -> None:
    """Write a record that is many times larger than its topic takes, and on the wire is small."""
    refused: list[object] = []
    producer = Producer(
        {**PRODUCER_SETTINGS, "bootstrap.servers": bootstrap, "compression.type": "gzip", "message.max.bytes": 10**9}
    )
    producer.produce(
        topic, value, key, partition, headers=list(headers.items()), on_delivery=lambda error, _: refused.append(error)
    )
    assert producer.flush(30) == 0
    assert refused == [None]


def read_all(
    bootstrap: str,
    topic: str | Sequence[str],
    until: int | Callable[[list[Record]], object] | None = None,
    timeout: float = 15.0,
) -> list[Record]:
    """Read topics from the beginning, committed records only, in the order of each partition.

    Args:
        bootstrap: the broker.
        topic: one name or several.
        until: a number of records to wait for, or a condition on all records read so far; None reads what is there now
            and returns, which may be nothing.
        timeout: the most to wait, in seconds.

    Raises:
        AssertionError: `until` did not come true in time; tells what was read.
    """
    names = [topic] if isinstance(topic, str) else list(topic)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not-used",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        return _read(consumer, names, until, time.monotonic() + timeout)
    finally:
        consumer.close()


def _read(
    consumer: Consumer, names: list[str], until: int | Callable[[list[Record]], object] | None, deadline: float
) -> list[Record]:
    partitions = [
        TopicPartition(name, partition, OFFSET_BEGINNING)
        for name in names
        for partition in consumer.list_topics(name, timeout=10).topics[name].partitions
    ]
    assert partitions, f"{names}: no such topic"
    consumer.assign(partitions)
    at_end: set[tuple[str, int]] = set()
    records: list[Record] = []
    while True:
        if until is None:
            if len(at_end) == len(partitions):
                return records
        elif len(records) >= until if isinstance(until, int) else until(records):
            return records
        assert time.monotonic() < deadline, f"{names}: read {len(records)} records in time: {records[-20:]}"
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            records.append(_record(message))
        elif error.code() == error._PARTITION_EOF:
            at_end.add((message.topic() or "", message.partition() or 0))
        elif not error.retriable():
            raise KafkaException(error)


def _record(message: Message) -> Record:
    headers = tuple(message.headers() or ())
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return Record(topic, partition, offset, message.timestamp()[1], message.key(), message.value(), headers)
