"""From Kafka messages to rows of the journal; pure apart from the messages."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID, uuid5

import msgspec
from confluent_kafka import Message

from schemas.codec import decode
from schemas.dead_letters import DeadLetter
from schemas.envelope import headers_of
from schemas.errors import DecodeError
from schemas.reasons import DeadReason
from schemas.records import DeliveryEvent, EventType
from schemas.topics import DAY_MS, DELIVERY_EVENTS

SERVICE = "journal"
FOREIGN_IDS = UUID("0b8c9a52-6d0e-5c8e-8d53-1f4fb6c0a9d7")
"""The name space for event ids that are no UUIDs; ours are."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
FUTURE_LIMIT_MS = DAY_MS
"""How far ahead of this machine's clock an event may lie. Each day gets a partition, so a wild time would leave one
that no retention ever reaches."""

COLUMNS = (
    "at",
    "event_id",
    "type",
    "notification_id",
    "recipient",
    "kind",
    "dedup_key",
    "step_no",
    "channel",
    "provider",
    "attempt",
    "key",
    "reason",
    "detail",
    "due_at",
    "next_due_at",
    "provider_ref",
    "latency_ms",
    "steps",
    "depth",
    "expires_at",
    "kafka_partition",
    "kafka_offset",
)
"""The columns of `rung.delivery_event`, in the order of `Entry.row`."""


class Entry(NamedTuple):
    """One event, with the message that brought it."""

    message: Message
    partition: int
    offset: int
    event_id: str
    type: EventType
    event: DeliveryEvent

    def row(self) -> tuple[str | int | None, ...]:
        """The values of `COLUMNS`."""
        e = self.event
        return (
            e.at,
            self.event_id,
            self.type.value,
            str(e.notification_id),
            e.recipient,
            e.kind,
            e.dedup_key,
            e.step_no,
            e.channel,
            e.provider,
            e.attempt,
            e.key,
            e.reason,
            e.detail,
            e.due_at,
            e.next_due_at,
            e.provider_ref,
            e.latency_ms,
            None if e.steps is None else msgspec.json.encode(e.steps).decode(),
            e.depth,
            e.expires_at,
            self.partition,
            self.offset,
        )


@dataclass(frozen=True, slots=True)
class SetAside:
    """A message that is no event of the journal, and why."""

    message: Message
    letter: DeadLetter
    refused: bool = False
    """Whether it could be decoded, and PostgreSQL did not take it."""


@dataclass(slots=True)
class Batch:
    """What one read of the topic brought."""

    entries: list[Entry] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)
    past_retention: int = 0
    """Events older than what the journal keeps; they are not written."""
    next_offsets: dict[int, int] = field(default_factory=dict)
    """Per partition, the offset after the last message of this batch."""

    @property
    def days(self) -> set[int]:
        """The UTC days of its events, counted from the epoch."""
        return {entry.event.at // DAY_MS for entry in self.entries}


def read(messages: Iterable[Message], *, now: int, oldest_at: int) -> Batch:
    """Decode messages in order. `oldest_at` is the first moment that the journal keeps (milliseconds)."""
    batch = Batch()
    for message in messages:
        partition, offset = place(message)
        batch.next_offsets[partition] = offset + 1
        found = _entry(message, partition, offset, now)
        if isinstance(found, SetAside):
            batch.set_aside.append(found)
        elif found.event.at < oldest_at:
            batch.past_retention += 1
        else:
            batch.entries.append(found)
    return batch


def place(message: Message) -> tuple[int, int]:
    """Partition and offset of a message that was read."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None  # noqa: S101 - both are set on everything that was read
    assert offset is not None  # noqa: S101
    return partition, offset


def _entry(message: Message, partition: int, offset: int, now: int) -> Entry | SetAside:
    try:
        decoded = decode(DELIVERY_EVENTS, message.key(), message.value(), headers_of(message))
        event = decoded.record
        assert isinstance(event, DeliveryEvent)  # noqa: S101 - the topic carries no other type
        if not 0 <= event.at <= now + FUTURE_LIMIT_MS:
            raise DecodeError(DeadReason.BAD_FIELD, "at is before 1970 or more than a day ahead of the clock")
    except DecodeError as error:
        return set_aside(message, error.reason, error.detail, now)
    return Entry(message, partition, offset, row_id(decoded.envelope.id), EventType(decoded.envelope.type), event)


def set_aside(message: Message, reason: DeadReason, detail: str, now: int, *, refused: bool = False) -> SetAside:
    """Make a message a dead letter."""
    partition, offset = place(message)
    letter = DeadLetter(reason, detail, DELIVERY_EVENTS.name, partition, offset, SERVICE, now)
    return SetAside(message, letter, refused)


def row_id(ce_id: str) -> str:
    """An event's id as the journal keeps it: the `ce_id`, or a UUID made of it where a foreign writer had another
    form."""
    if _UUID.fullmatch(ce_id):
        return ce_id
    try:
        return str(UUID(ce_id))
    except ValueError:
        return str(uuid5(FOREIGN_IDS, ce_id))
