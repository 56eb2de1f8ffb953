"""Bytes to records and back, for every topic of the catalogue.

`decode` either returns a record that is whole or raises `DecodeError` with a named reason; it never lets another
exception out, whatever the bytes are.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import get_args

import msgspec

from schemas import records as r
from schemas.envelope import Envelope, from_headers
from schemas.errors import DecodeError
from schemas.reasons import DeadReason
from schemas.state import RecipientState
from schemas.topics import Topic

AnyRecord = (
    r.Notify
    | r.Redrive
    | r.Resolve
    | r.PutRecipient
    | r.EraseRecipient
    | r.RecipientProfile
    | r.Due
    | r.Delivery
    | r.Outcome
    | r.DeliveryEvent
)

RECORDS: dict[str, type[AnyRecord]] = {
    cls.TYPE: cls
    for cls in (
        r.Notify,
        r.Redrive,
        r.Resolve,
        r.PutRecipient,
        r.EraseRecipient,
        r.RecipientProfile,
        r.Due,
        r.Delivery,
        r.Outcome,
    )
} | dict.fromkeys(r.EventType, r.DeliveryEvent)
"""Every CloudEvents type and the struct of its value."""

DEPTH_LIMIT = 64
"""Levels of objects and arrays in a notification's data."""
NUMBER_LIMIT = 2**53 - 1
"""Of a record's own moments, lengths and counts: JSON's numbers have no end, and beyond 53 bits its readers differ
(RFC 7493, section 2.2). Numbers in the data are the business's own."""
_ENCODER = msgspec.json.Encoder()
_STATE_DECODER = msgspec.json.Decoder(RecipientState)


_NUMBERS = {
    cls: tuple(f.name for f in msgspec.structs.fields(cls) if int in (f.type, *get_args(f.type)))
    for cls in {*RECORDS.values()}
}
"""The moments, lengths and counts of each record."""
_READERS: dict[str, tuple[Callable[[bytes], AnyRecord], tuple[str, ...], bool]] = {
    name: (msgspec.json.Decoder(cls).decode, _NUMBERS[cls], "data" in cls.__struct_fields__)
    for name, cls in RECORDS.items()
}
"""How each type is read: its decoder, its numbers, and whether it carries data of the business."""


class Decoded(msgspec.Struct, frozen=True):
    """A record with its envelope."""

    envelope: Envelope
    record: AnyRecord


def encode(record: AnyRecord) -> bytes:
    """The JSON value of a record."""
    return _ENCODER.encode(record)


def encode_key(recipient: str) -> bytes:
    """The Kafka key of everything about a recipient: its UTF-8 bytes, not normalised (NFC and NFD are two people)."""
    return recipient.encode()


def decode_key(key: bytes | None) -> str:
    """The recipient that a Kafka key names.

    Raises:
        DecodeError: there is no key, or it is not UTF-8.
    """
    if not key:
        raise DecodeError(DeadReason.NULL_KEY, "the record has no key; the key is the recipient")
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(DeadReason.KEY_NOT_UTF8, f"the key is not UTF-8 at byte {error.start}") from error


def decode(
    topic: Topic,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | str | None]] | Mapping[str, bytes] | None,
) -> Decoded:
    """Read one record of a catalogue topic.

    Raises:
        DecodeError: key, headers or value are not what the topic carries.
    """
    recipient = decode_key(key)
    envelope = from_headers(headers)
    return Decoded(envelope, decode_record(topic, envelope.type, recipient, value))


def decode_record(topic: Topic, event_type: str, recipient: str, value: bytes | None) -> AnyRecord:
    """Read the value of a record, of which type and key are known.

    Raises:
        DecodeError: type or value are not what the topic carries.
    """
    if event_type not in topic.types:
        raise DecodeError(DeadReason.UNKNOWN_TYPE, f"{topic.name} carries no {event_type[:80]!r}")
    if value is None:
        raise DecodeError(DeadReason.NULL_VALUE, f"a {event_type} must have a value")
    decode_value, numbers, has_data = _READERS[event_type]
    try:
        record = decode_value(value)
    except (ValueError, RecursionError) as error:
        raise _refusal(error, value) from error
    if has_data and value.count(b"[") + value.count(b"{") > DEPTH_LIMIT:
        _check_depth(record)
    for name in numbers:
        number = getattr(record, name)
        if number is not None and not -NUMBER_LIMIT <= number <= NUMBER_LIMIT:
            raise DecodeError(DeadReason.BAD_FIELD, f"a whole number beyond 53 bits - at `$.{name}`")
    if record.recipient != recipient:
        raise DecodeError(DeadReason.KEY_MISMATCH, "the key is not the recipient of the value")
    return record


def _refusal(error: Exception, value: bytes) -> DecodeError:
    """What a decoder's exception says about the value."""
    if isinstance(error, msgspec.ValidationError):
        return DecodeError(DeadReason.BAD_FIELD, _place(error))
    if isinstance(error, msgspec.DecodeError):
        return DecodeError(_not_json_reason(value), str(error))
    # Its text may quote the value.
    return DecodeError(_not_json_reason(value), f"the value cannot be read ({type(error).__name__})")


def _check_depth(record: AnyRecord) -> None:
    """Refuse data that nests deeper than its readers' stacks are sure to reach: what one of them can read, another one,
    or the same one inside a larger value, could not."""
    level: list[object] = [getattr(record, "data", None) or {}]
    for _ in range(DEPTH_LIMIT):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)  # type: ignore[attr-defined]
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise DecodeError(DeadReason.BAD_FIELD, f"more than {DEPTH_LIMIT} levels of nesting - at `$.data`")


def _place(error: msgspec.ValidationError) -> str:
    """The path and the type that was expected, as the library says it. Of a word that is not among an enum's it quotes
    the word, which is content; the path stands last and has no names of a map's keys."""
    message = str(error)
    if not message.startswith("Invalid enum value"):
        return message
    return f"Expected one of the words that the schema lists - at {message.rpartition(' - at ')[2]}"


def _not_json_reason(value: bytes) -> DeadReason:
    try:
        value.decode()
    except UnicodeDecodeError:
        return DeadReason.NOT_UTF8
    return DeadReason.NOT_JSON


def encode_state(state: RecipientState) -> bytes:
    """The stored form of a recipient's state."""
    return _ENCODER.encode(state)


def decode_state(value: bytes) -> RecipientState:
    """Read a stored state back.

    Raises:
        DecodeError: the bytes are no state. This is our fault and not an input's: callers stop rather than go on.
    """
    try:
        return _STATE_DECODER.decode(value)
    except (ValueError, RecursionError) as error:
        raise _refusal(error, value) from error
