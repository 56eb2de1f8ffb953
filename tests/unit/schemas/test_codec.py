"""Bytes to records: what is whole is read, and whatever else comes is a `DecodeError` with its reason."""

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import records as r
from schemas import topics
from schemas.codec import RECORDS, Decoded, decode, decode_key, decode_state, encode, encode_key, encode_state
from schemas.envelope import Envelope, headers_of, legible_headers, to_headers
from schemas.errors import DecodeError
from schemas.reasons import DeadReason
from schemas.state import RecipientState
from schemas.topics import CATALOGUE, Topic
from tests.support import corpus
from tests.support.structs import structs, texts

RESOLVE = b'{"recipient":"r","dedup_key":"d","resolution":"paid"}'
HEADERS: dict[str, bytes] = dict(to_headers(Envelope("1", "rung.resolve", "/test", 1_777_636_800_000)))
ANY_TOPIC = st.sampled_from(CATALOGUE)
EXAMPLES = corpus.examples()


def reason_of(key: bytes | None, value: bytes | None, headers: Any, topic: Topic = topics.RESOLUTIONS) -> DeadReason:
    """Why a record cannot be read."""
    with pytest.raises(DecodeError) as caught:
        decode(topic, key, value, headers)
    assert caught.value.detail
    assert str(caught.value).startswith(caught.value.reason)
    return caught.value.reason


def without(name: str) -> dict[str, bytes]:
    """The headers but one."""
    return {header: value for header, value in HEADERS.items() if header != name}


def test_a_whole_record_is_read_with_its_envelope() -> None:
    """Value and headers come back as what was written, from a list or a mapping of headers."""
    for headers in (HEADERS, list(HEADERS.items()), [("other", None), *HEADERS.items()]):
        decoded = decode(topics.RESOLUTIONS, b"r", RESOLVE, headers)
        assert decoded.record == RECORDS["rung.resolve"](recipient="r", dedup_key="d", resolution="paid")
        assert decoded.envelope == Envelope("1", "rung.resolve", "/test", 1_777_636_800_000)


@pytest.mark.parametrize(
    ("key", "value", "headers", "reason"),
    [
        (None, RESOLVE, HEADERS, DeadReason.NULL_KEY),
        (b"", RESOLVE, HEADERS, DeadReason.NULL_KEY),
        (b"\xff", RESOLVE, HEADERS, DeadReason.KEY_NOT_UTF8),
        (b"\xed\xa0\x80", RESOLVE, HEADERS, DeadReason.KEY_NOT_UTF8),
        (b"other", RESOLVE, HEADERS, DeadReason.KEY_MISMATCH),
        (b"r", None, HEADERS, DeadReason.NULL_VALUE),
        (b"r", b"", HEADERS, DeadReason.NOT_JSON),
        (b"r", b"{", HEADERS, DeadReason.NOT_JSON),
        (b"r", b"[" * 100_000, HEADERS, DeadReason.BAD_FIELD),
        (b"r", b'{"recipient":"r","x":' + b"[" * 100_000, HEADERS, DeadReason.NOT_JSON),
        (b"r", b'{"recipient":"\xff"}', HEADERS, DeadReason.NOT_UTF8),
        (b"r", b'{"recipient":"r","dedup_key":"\\ud800","resolution":""}', HEADERS, DeadReason.NOT_JSON),
        (b"r", b"null", HEADERS, DeadReason.BAD_FIELD),
        (b"r", b'{"recipient":"r","dedup_key":"d"}', HEADERS, DeadReason.BAD_FIELD),
        (b"r", b'{"recipient":"r","dedup_key":1,"resolution":"paid"}', HEADERS, DeadReason.BAD_FIELD),
        (b"r", RESOLVE, None, DeadReason.MISSING_HEADER),
        (b"r", RESOLVE, [], DeadReason.MISSING_HEADER),
        (b"r", RESOLVE, without("ce_id"), DeadReason.MISSING_HEADER),
        (b"r", RESOLVE, without("ce_type"), DeadReason.MISSING_HEADER),
        (b"r", RESOLVE, without("ce_source"), DeadReason.MISSING_HEADER),
        (b"r", RESOLVE, without("ce_specversion"), DeadReason.MISSING_HEADER),
        (b"r", RESOLVE, [*HEADERS.items(), ("ce_id", None)], DeadReason.MISSING_HEADER),
        (b"r", RESOLVE, {**HEADERS, "ce_id": b"\xff"}, DeadReason.BAD_HEADER),
        (b"r", RESOLVE, {**HEADERS, "ce_specversion": b"0.3"}, DeadReason.BAD_HEADER),
        (b"r", RESOLVE, {**HEADERS, "ce_time": b"yesterday"}, DeadReason.BAD_HEADER),
        (b"r", RESOLVE, {**HEADERS, "ce_time": b"2026-05-01T12:00:00"}, DeadReason.BAD_HEADER),
        (b"r", RESOLVE, {**HEADERS, "ce_type": b"rung.resolved"}, DeadReason.UNKNOWN_TYPE),
        (b"r", RESOLVE, {**HEADERS, "ce_type": b"rung.notify"}, DeadReason.UNKNOWN_TYPE),
    ],
)
def test_each_fault_has_its_reason(key: bytes | None, value: bytes | None, headers: Any, reason: DeadReason) -> None:
    """What is wrong with a record is one of the named reasons."""
    assert reason_of(key, value, headers) == reason


OUTCOME = b'{"notification_id":"%s","recipient":"r","dedup_key":"d","step_no":0,"channel":"c","key":"k",%s}'
SOME_ID = b"5f0c7c1e-8a2b-5d0e-9a53-5b1d4f6f2c11"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (OUTCOME % (SOME_ID, b'"outcome":"pass-word","at":1'), "$.outcome"),
        (OUTCOME % (SOME_ID, b'"outcome":"x - at `$.pass-word`","at":1'), "$.outcome"),
        (OUTCOME % (SOME_ID, b'"outcome":"sent","at":"pass-word"'), "Expected `int`, got `str` - at `$.at`"),
        (OUTCOME % (b"pass-word", b'"outcome":"sent","at":1'), "$.notification_id"),
        (b'{"recipient":"r","x":' + b"[" * 100_000 + b'"pass-word"', "RecursionError"),
        (b'{"recipient":"r",pass-word', "byte"),
    ],
)
def test_what_is_told_of_a_fault_is_its_place_and_no_content(value: bytes, place: str) -> None:
    """The detail of a dead letter goes to logs and people: the path and what was expected, never what stood there."""
    with pytest.raises(DecodeError) as caught:
        decode(topics.OUTCOMES, b"r", value, {**HEADERS, "ce_type": b"rung.outcome"})
    assert place in caught.value.detail
    assert "pass-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "value"),
    [("ce_time", b"pass-word"), ("ce_time", b"2026-05-01T12:00:00"), ("ce_specversion", b"pass-word")],
)
def test_what_is_told_of_a_header_is_its_name(header: str, value: bytes) -> None:
    """The name of the header is told, and not what it held."""
    with pytest.raises(DecodeError) as caught:
        decode(topics.RESOLUTIONS, b"r", RESOLVE, {**HEADERS, header: value})
    assert header in caught.value.detail
    assert value.decode() not in str(caught.value)


def test_a_type_belongs_to_its_topics() -> None:
    """A type that another topic carries is unknown on this one, and on dead-letters every type is."""
    assert reason_of(b"r", RESOLVE, HEADERS, topics.NOTIFICATIONS) == DeadReason.UNKNOWN_TYPE
    assert reason_of(b"r", RESOLVE, HEADERS, topics.DEAD_LETTERS) == DeadReason.UNKNOWN_TYPE


def test_without_ce_time_the_time_is_zero() -> None:
    """CloudEvents makes the time optional; a text header, as some clients hand them out, is read as bytes are."""
    assert decode(topics.RESOLUTIONS, b"r", RESOLVE, without("ce_time")).envelope.time == 0
    texts_of = [(name, value.decode()) for name, value in HEADERS.items()]
    assert decode(topics.RESOLUTIONS, b"r", RESOLVE, texts_of).envelope.id == "1"


def test_a_stored_state_that_cannot_be_read_says_why() -> None:
    """A broken state is told apart by the same reasons."""
    for value, reason in ((b"{", DeadReason.NOT_JSON), (b"\xff", DeadReason.NOT_UTF8), (b"{}", DeadReason.BAD_FIELD)):
        with pytest.raises(DecodeError) as caught:
            decode_state(value)
        assert caught.value.reason == reason


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_every_record_comes_back_as_it_was(data: st.DataObject) -> None:
    """Any record, written and read on any topic that carries its type, is the same record."""
    topic = data.draw(ANY_TOPIC.filter(lambda topic: bool(topic.types)))
    name = data.draw(st.sampled_from(topic.types))
    record = data.draw(structs(RECORDS[name]))
    envelope = Envelope("id", name, "/test", data.draw(st.integers(0, 4_102_444_800_000)))
    decoded = decode(topic, encode_key(record.recipient), encode(record), to_headers(envelope))
    assert decoded.record == record
    assert decoded.envelope == envelope


@given(structs(RecipientState))
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
def test_every_state_comes_back_as_it_was(state: RecipientState) -> None:
    """Any state, stored and read, is the same state."""
    assert decode_state(encode_state(state)) == state


@given(texts.filter(bool))
def test_every_recipient_comes_back_as_it_was(recipient: str) -> None:
    """A recipient is its key's text, byte for byte: no normalisation joins two people."""
    assert decode_key(encode_key(recipient)) == recipient


def test_composed_and_decomposed_letters_are_two_recipients() -> None:
    """The same name in NFC and in NFD has two keys."""
    assert encode_key("zo\u00eb") != encode_key("zoe\u0308")


header_names = st.sampled_from(["ce_id", "ce_type", "ce_source", "ce_time", "ce_specversion", "due_at"]) | st.text()
header_values = (
    st.none()
    | st.binary(max_size=20)
    | st.text(max_size=20)
    | st.sampled_from([b"1.0", b"2026-05-01T12:00:00Z", b"0001-01-01T00:00:00+14:00", b"9999-12-31T23:59:59-14:00"])
    | st.sampled_from(sorted(RECORDS)).map(str.encode)
)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
).map(lambda value: json.dumps(value).encode())


def never_another_error(topic: Topic, key: bytes | None, value: bytes | None, headers: Any) -> None:
    """Reading ends with a record of that key, or with a `DecodeError` whose reason is named."""
    try:
        recipient = decode(topic, key, value, headers).record.recipient
    except DecodeError as error:
        known = error.reason in DeadReason
    else:
        known = recipient.encode() == key
    assert known


@given(
    ANY_TOPIC,
    st.none() | st.binary(max_size=8),
    st.none() | st.binary() | json_like,
    st.none()
    | st.lists(st.tuples(header_names, header_values), max_size=7)
    | st.dictionaries(header_names, st.binary(max_size=20), max_size=7),
)
def test_no_bytes_raise_anything_else(topic: Topic, key: bytes | None, value: bytes | None, headers: Any) -> None:
    """Whatever key, value and headers are, the outcome is a record or a `DecodeError`."""
    never_another_error(topic, key, value, headers)


@given(st.sampled_from(EXAMPLES), st.data())
def test_no_damage_to_a_real_record_raises_anything_else(example: corpus.Example, data: st.DataObject) -> None:
    """A released record with some bytes replaced or a field of another type is a record or a `DecodeError`."""
    topic = next(topic for topic in CATALOGUE if topic.name == example.topic)
    if data.draw(st.booleans()):
        start = data.draw(st.integers(0, len(example.value)))
        end = data.draw(st.integers(start, min(len(example.value), start + 8)))
        value = example.value[:start] + data.draw(st.binary(max_size=8)) + example.value[end:]
    else:
        fields = json.loads(example.value)
        fields[data.draw(st.sampled_from(sorted(fields)))] = json.loads(data.draw(json_like))
        value = json.dumps(fields).encode()
    never_another_error(topic, example.key, value, example.headers)


class Message:
    """What a client library hands over; its headers may be none that can be read."""

    def __init__(self, headers: list[tuple[str, bytes]] | None, legible: bool = True) -> None:
        self._headers = headers
        self._legible = legible

    def headers(self) -> list[tuple[str, bytes]] | None:
        """As the library: it makes all names into text, or none."""
        return self._headers if self._legible else [(b"\xff".decode(), b"")]


def test_headers_whose_names_are_no_text_are_a_named_fault() -> None:
    """The library gives out none of them: a `DecodeError` for the reader, and no headers for the dead letter."""
    with pytest.raises(DecodeError) as caught:
        headers_of(Message(None, legible=False))
    assert caught.value.reason == DeadReason.BAD_HEADER
    assert legible_headers(Message(None, legible=False)) == []
    assert legible_headers(Message([("a", b"1")]), caught.value.detail) == [], "the library is not asked twice"
    assert headers_of(Message(None)) == []
    assert legible_headers(Message([("a", b"1")])) == [("a", b"1")]


@pytest.mark.parametrize("nested", ["list", "dict"])
def test_data_that_nests_too_deep_is_refused(nested: str) -> None:
    """64 levels of data are read, 65 are not, however they nest; many shallow ones are no matter."""

    def deep(levels: int) -> dict[str, Any]:
        inner: Any = 1
        for _ in range(levels - 1):
            inner = [inner] if nested == "list" else {"x": inner}
        return {"x": inner}

    def read(data: dict[str, Any]) -> Decoded:
        notify = r.Notify(notification_id=UUID(int=1), recipient="ada", kind="k", dedup_key="d", data=data)
        return decode(
            topics.NOTIFICATIONS, b"ada", encode(notify), to_headers(Envelope("1", r.Notify.TYPE, "/test", 0))
        )

    assert isinstance(read(deep(64)).record, r.Notify)
    assert isinstance(read({"x": [[] for _ in range(500)]}).record, r.Notify)
    with pytest.raises(DecodeError, match="more than 64 levels"):
        read(deep(65))


@pytest.mark.parametrize("number", [b"9007199254740992", b"-9007199254740992", b"1" + b"0" * 400, b"1e300"])
def test_a_number_that_not_every_reader_holds_is_refused(number: bytes) -> None:
    """In a field of ours; in the business's data it is the business's own matter."""
    headers = to_headers(Envelope("1", r.Due.TYPE, "/test", 0))
    value = b'{"recipient":"ada","due_at":' + number + b"}"
    assert reason_of(b"ada", value, headers, topics.DUE) is DeadReason.BAD_FIELD
    notify = {"notification_id": str(UUID(int=1)), "recipient": "ada", "kind": "k", "dedup_key": "d"}
    text = json.dumps(notify | {"data": {"n": 0}}).replace("0}}", number.decode() + "}}").encode()
    headers = to_headers(Envelope("1", r.Notify.TYPE, "/test", 0))
    assert isinstance(decode(topics.NOTIFICATIONS, b"ada", text, headers).record, r.Notify)
