"""A row of the outbox as the record to publish, or the reason why it never can be."""

from typing import NamedTuple

from schemas import codec
from schemas.envelope import Headers, headers_for
from schemas.errors import DecodeError
from schemas.reasons import DeadReason
from schemas.topics import NOTIFICATIONS, RESOLUTIONS, Topic

SOURCE = "/rung/outbox"
TOPICS: dict[str, Topic] = {topic.name: topic for topic in (NOTIFICATIONS, RESOLUTIONS)}
MAX_VALUE_BYTES = max(topic.max_message_bytes for topic in TOPICS.values())


class Row(NamedTuple):
    """One row as it was read."""

    group: int
    """The number of the group that it was read for."""
    seq: int
    id: str
    aggregatetype: str
    aggregateid: str
    type: str
    bucket: int
    created_ms: int
    size: int
    """The payload's bytes as JSON text."""
    body: str | None
    """The payload; None if it is larger than any record may be."""
    fetched: int
    """How many rows the group's page had before it was cut to size."""


class Outgoing(NamedTuple):
    """A record to publish."""

    topic: Topic
    key: bytes
    value: bytes
    headers: Headers


def outgoing(row: Row) -> Outgoing:
    """The record of a row, checked as its reader will.

    Raises:
        DecodeError: no reader could take it; the row is set aside with the reason.
    """
    _, _, event_id, name, recipient, event_type, _, created_ms, size, body, _ = row  # by name each would be a call
    topic = TOPICS.get(name)
    if topic is None:
        raise DecodeError(DeadReason.UNKNOWN_TYPE, f"the outbox has no topic {name[:80]!r}")
    if body is None:
        raise DecodeError(DeadReason.TOO_LARGE, f"the payload has {size} bytes, a record {topic.max_message_bytes}")
    try:
        headers = headers_for(event_id, event_type, SOURCE, created_ms)
    except (ValueError, OverflowError) as error:
        raise DecodeError(DeadReason.BAD_HEADER, "created_at is no time that a record can carry") from error
    if not recipient:
        raise DecodeError(DeadReason.NULL_KEY, "the row names no recipient; it is the record's key")
    if not event_type:
        raise DecodeError(DeadReason.MISSING_HEADER, "the row has no type")
    value = body.encode()
    codec.decode_record(topic, event_type, recipient, value)
    return Outgoing(topic, codec.encode_key(recipient), value, headers)
