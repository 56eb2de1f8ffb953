"""From a record to an event of the domain, or to a named reason why there is none."""

from collections.abc import Mapping

from processor.domain.model import (
    Event,
    NotifyReceived,
    OutcomeReceived,
    RecipientErased,
    RecipientPut,
    RedriveReceived,
    ResolutionReceived,
    WokeUp,
)
from processor.engine.port import InputRecord
from schemas import records as r
from schemas.codec import AnyRecord, decode_key, decode_record, encode
from schemas.dead_letters import SET_ASIDE_AT_HEADER
from schemas.envelope import Envelope, from_headers
from schemas.errors import DecodeError
from schemas.partitioner import partition_of
from schemas.reasons import DeadReason
from schemas.state import Ladder
from schemas.topics import PARTITIONER

KIB = 1024
MAX_NOTIFY_BYTES = 1024 * KIB
"""Kafka's default for one record. A value may grow when it is written again (`1E15` becomes `1000000000000000.0`), so
what counts is the size after reading; a delivery carries the data again, and must fit its topic."""
MAX_PROFILE_BYTES = 256 * KIB
"""A profile is published on its own and its addresses are copied into deliveries."""
MAX_OTHER_BYTES = 64 * KIB
MAX_NAME_BYTES = 16 * KIB
"""Of a recipient, a kind and a dedup key, which are repeated in every record about the notification."""

LIMITS: dict[type[AnyRecord], int] = {
    r.Notify: MAX_NOTIFY_BYTES,
    r.Redrive: MAX_NOTIFY_BYTES,
    r.PutRecipient: MAX_PROFILE_BYTES,
    r.EraseRecipient: MAX_OTHER_BYTES,
    r.Resolve: MAX_OTHER_BYTES,
    r.Due: MAX_OTHER_BYTES,
    r.Outcome: MAX_OTHER_BYTES,
}
_MOMENT_DIGITS = 15
_GROWTH = 8
"""More than a JSON value can grow when it is written again."""


def read(record: InputRecord, ladders: Mapping[str, Ladder]) -> Event:
    """The event that a record brings.

    Raises:
        DecodeError: it brings none; the reason says why.
    """
    recipient = decode_key(record.key)
    envelope = from_headers(record.headers)
    decoded = decode_record(record.topic, envelope.type, recipient, record.value)
    _check_size(decoded, len(record.value or b""))
    if isinstance(decoded, r.PutRecipient):
        return RecipientPut(ce_id=envelope.id, put=decoded, set_aside_at=_set_aside_at(record))
    if isinstance(decoded, r.EraseRecipient):
        return RecipientErased(ce_id=envelope.id, erase=decoded, set_aside_at=_set_aside_at(record))
    return _event(decoded, envelope, ladders)


def _event(decoded: AnyRecord, envelope: Envelope, ladders: Mapping[str, Ladder]) -> Event:
    match decoded:
        case r.Notify():
            return NotifyReceived(ce_id=envelope.id, notify=decoded, ladder=ladders.get(decoded.kind))
        case r.Outcome():
            return OutcomeReceived(outcome=decoded)
        case r.Due():
            return WokeUp(recipient=decoded.recipient, due_at=decoded.due_at)
        case r.Resolve():
            return ResolutionReceived(ce_id=envelope.id, resolve=decoded)
        case r.Redrive():
            return RedriveReceived(redrive=decoded, ladder=ladders.get(decoded.kind))
        case _:
            # The catalogue keeps the others off the inputs, and only what it lists is read.
            raise DecodeError(DeadReason.UNKNOWN_TYPE, f"{envelope.type!r} is no input")


def _set_aside_at(record: InputRecord) -> int | None:
    """When a record that was put back had been set aside."""
    text = dict(record.headers or ()).get(SET_ASIDE_AT_HEADER)
    if text is None:
        return None
    if not text.isdigit() or len(text) > _MOMENT_DIGITS:
        raise DecodeError(DeadReason.BAD_HEADER, f"{SET_ASIDE_AT_HEADER} is no moment in milliseconds")
    return int(text)


def check_place(record: InputRecord) -> None:
    """Refuse what another partitioner put here. The recipient's state is in another partition: a request would begin a
    second one beside it, and a resolution would stop nothing. To be asked where nothing is known of the recipient in
    the record's own partition; a state that is there shows that this is the place, for less than the hash costs.

    Raises:
        DecodeError: the key belongs in another partition.
    """
    if record.partitions is None or record.key is None:
        return
    place = partition_of(record.key, record.partitions)
    if place != record.partition:
        detail = f"the key belongs in partition {place} of {record.partitions}; its producer must use {PARTITIONER}"
        raise DecodeError(DeadReason.WRONG_PARTITION, detail)


def _check_size(record: AnyRecord, received: int) -> None:
    limit = LIMITS.get(type(record), MAX_OTHER_BYTES)
    size = received
    if received <= limit < received * _GROWTH:
        size = len(encode(record))
    if size > limit:
        raise DecodeError(DeadReason.TOO_LARGE, f"{size} bytes, and {limit} are the most for a {type(record).__name__}")
    # JSON has no shorter way to write a text than its UTF-8.
    if received <= MAX_NAME_BYTES:
        return
    for name in ("recipient", "kind", "dedup_key"):
        text = getattr(record, name, "")
        if len(text.encode()) > MAX_NAME_BYTES:
            raise DecodeError(DeadReason.TOO_LARGE, f"{name} has more than {MAX_NAME_BYTES} bytes")
