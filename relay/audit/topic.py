"""Reading `delivery-events` by offsets, one partition at a time, committed records only; no group, no commits.

Memory: librdkafka's prefetch (at most 32 MiB) and one batch.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource

from relay.audit.book import Fact
from schemas.codec import decode
from schemas.envelope import headers_of, legible_headers
from schemas.errors import DecodeError
from schemas.records import DeliveryEvent, EventType
from schemas.topics import DEAD_LETTERS, DELIVERY_EVENTS, NOTIFICATIONS, Naming

log = structlog.get_logger("rung.audit")

BATCH = 1_000
TIMEOUT_SECONDS = 10.0
PROCESSOR_GROUP = "rung-processor"
"""The processor's consumer group, after the topic prefix: how far it is, which is all that is asked of it."""
SILENCE_SECONDS = 30.0
"""A transaction of a process that died is open for 10 s at the most."""


@dataclass(frozen=True, slots=True)
class Read:
    """One record that was read. `fact` is None where it is no event; its dead letter is the journal's."""

    offset: int
    fact: Fact | None
    storable: bool
    """The journal's table can hold it."""


def storable(fact: Fact | None, value: bytes | None) -> bool:
    """Whether the journal's table can hold an event: it has no NUL, and its counts are `integer`. What the table cannot
    hold is the journal's dead letter."""
    counts = () if fact is None else (fact.event.step_no, fact.event.attempt, fact.event.depth)
    return b"\\u0000" not in (value or b"") and all(-(2**31) <= count < 2**31 for count in counts if count is not None)


class EventTopic:
    """The topic as an auditor reads it."""

    def __init__(self, kafka: Mapping[str, str], naming: Naming) -> None:
        self._admin = AdminClient(dict(kafka))
        self.name = naming(DELIVERY_EVENTS)
        self._dead = naming(DEAD_LETTERS)
        self._requests = naming(NOTIFICATIONS)
        # It subscribes to nothing, so it is no member of the group that it asks about. An admin client that asks may
        # end the process by SIGSEGV while the group's coordinator moves (librdkafka issue 5040).
        self._asker = Consumer({**kafka, "group.id": naming.prefix + PROCESSOR_GROUP, "enable.auto.commit": False})
        self._consumer = Consumer(
            {
                **kafka,
                "group.id": f"{naming.prefix}rung-audit",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": 32 * 1024,
                "fetch.wait.max.ms": 50,
            },
            logger=None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()
        self._asker.close()

    def partitions(self, topic: str | None = None) -> list[int]:
        """The numbers of the topic's partitions."""
        name = topic or self.name
        found = self._consumer.list_topics(name, timeout=TIMEOUT_SECONDS).topics[name]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def bounds(self, partition: int, topic: str | None = None) -> tuple[int, int]:
        """The first offset, and the one after the last."""
        low, high = self._consumer.get_watermark_offsets(
            TopicPartition(topic or self.name, partition), timeout=TIMEOUT_SECONDS
        )
        return int(low), int(high)

    def offset_at(self, partition: int, at: int, topic: str | None = None) -> int:
        """The offset of the first record that was written at a moment or later; the end, if there is none."""
        name = topic or self.name
        (found,) = self._consumer.offsets_for_times([TopicPartition(name, partition, at)], timeout=TIMEOUT_SECONDS)
        return found.offset if found.offset >= 0 else self.bounds(partition, name)[1]

    def retention_ms(self) -> int | None:
        """The topic's own retention; None is for ever."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        (future,) = self._admin.describe_configs([resource], request_timeout=TIMEOUT_SECONDS).values()
        value = int(future.result()["retention.ms"].value)
        return None if value < 0 else value

    def read(self, partition: int, start: int, end: int) -> Iterator[Read]:
        """The records of a partition from `start` up to `end`; waits for transactions that are open before it.

        Raises:
            KafkaException: Kafka cannot be read, or a transaction stays open.
        """
        for message in self._messages(self.name, partition, start, end):
            value = message.value()
            fact = fact_of(message)
            yield Read(message.offset() or 0, fact, storable(fact, value))

    def dead_requests(self, since: int) -> set[str]:
        """The ids of requests that were made dead letters since a moment (milliseconds)."""
        found = set()
        for partition in self.partitions(self._dead):
            start = self.offset_at(partition, since, self._dead)
            for message in self._messages(self._dead, partition, start, self.bounds(partition, self._dead)[1]):
                headers = {name: value for name, value in legible_headers(message) if isinstance(value, bytes)}
                if headers.get("ce_type") == b"rung.notify":
                    found.add(headers.get("ce_id", b"").decode(errors="replace"))
        return found

    def request_ends(self) -> dict[int, int] | None:
        """The ends of the topic of requests; None where there is none."""
        if self._requests not in self._consumer.list_topics(timeout=TIMEOUT_SECONDS).topics:
            return None
        return {p: self.bounds(p, self._requests)[1] for p in self.partitions(self._requests)}

    def processed(self, ends: Mapping[int, int]) -> bool:
        """Whether the processor has committed all requests up to these ends."""
        wanted = [TopicPartition(self._requests, partition) for partition in ends]
        try:
            found = self._asker.committed(wanted, timeout=TIMEOUT_SECONDS)
        except KafkaException as error:
            # No such group yet, or its coordinator is on its way: not known is not passed.
            log.debug("processor_place_unknown", code=error.args[0].name())
            return False
        return all(
            place.error is None and not self._left(place.partition, place.offset, ends[place.partition])
            for place in found
        )

    def _left(self, partition: int, committed: int, end: int) -> bool:
        """Whether a request lies between a committed position and an end. Markers of transactions take places too, and
        nobody ever reads on past the last one."""
        if committed >= end or not end:
            return False
        try:
            return committed < 0 or any(True for _ in self._messages(self._requests, partition, committed, end))
        except KafkaException as error:
            log.debug("requests_unknown", code=error.args[0].name())
            return True

    def _messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
        if start >= end:
            return
        self._consumer.assign([TopicPartition(topic, partition, start)])
        silent_since = time.monotonic()
        try:
            while True:
                for message in self._consumer.consume(BATCH, 0.1):
                    silent_since = time.monotonic()
                    if message.topic() != topic or message.partition() != partition:
                        continue
                    error = message.error()
                    if error is None:
                        if (message.offset() or 0) >= end:
                            return
                        yield message
                        if (message.offset() or 0) + 1 >= end:
                            return
                    elif error.code() == KafkaError._PARTITION_EOF:
                        # Before the end lies an open transaction, or one whose end is on its way to this partition.
                        if (message.offset() or 0) >= end:
                            return
                    elif not error.retriable():
                        raise KafkaException(error)
                if time.monotonic() - silent_since > SILENCE_SECONDS:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        finally:
            self._consumer.unassign()


def fact_of(message: Message) -> Fact | None:
    """A message as an event; None if it is none."""
    try:
        decoded = decode(DELIVERY_EVENTS, message.key(), message.value(), headers_of(message))
    except DecodeError:
        return None
    event = decoded.record
    assert isinstance(event, DeliveryEvent)  # noqa: S101 - the topic carries no other type
    return Fact(decoded.envelope.id, EventType(decoded.envelope.type), event, message.offset() or 0)
