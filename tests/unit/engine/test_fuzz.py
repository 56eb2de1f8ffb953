"""Whatever comes in, in whatever order: a decision or a dead letter, and never an exception."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from processor.domain.decide import decide
from processor.engine.memory import MemoryEngine
from schemas.codec import RECORDS, AnyRecord, decode, decode_state, encode, encode_key, encode_state
from schemas.envelope import Envelope, to_headers
from schemas.errors import DecodeError
from schemas.reasons import DeadReason
from schemas.records import Delivery, DeliveryEvent, Outcome
from schemas.state import Ladder, LadderStep, RetryPolicy
from schemas.topics import CATALOGUE, DEAD_LETTERS, PROCESSOR_INPUTS, RECIPIENTS, Topic
from tests.support.recipient import NOON, identity
from tests.support.structs import structs

KEYS = ["k1", "k2"]
LADDERS = {
    kind: Ladder(
        kind=kind,
        steps=tuple(LadderStep(channel=c, after_ms=n * 60_000, template="t") for n, c in enumerate(channels)),
        stop_on=stop_on,  # type: ignore[arg-type]
        ordering=ordering,  # type: ignore[arg-type]
        retry=RetryPolicy(max_attempts=2),
    )
    for kind, channels, stop_on, ordering in (
        ("payment", ["push", "chat"], "resolution", "first-attempt"),
        ("news", ["push"], "delivered", "strict"),
    )
}
_KNOWN: dict[str, st.SearchStrategy[Any]] = {
    "recipient": st.sampled_from(["ada", "ada", "ada", "zoe\u0308"]),
    "dedup_key": st.sampled_from(KEYS),
    "kind": st.sampled_from([*LADDERS, "unheard of"]),
    "channel": st.sampled_from(["push", "chat"]),
    "step_no": st.integers(-1, 3),
    "claim": st.integers(-1, 3),
}


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Topic, AnyRecord]:
    """Any record of any input: some fields are such that records meet, all others are anything their types hold."""
    topic = draw(st.sampled_from(PROCESSOR_INPUTS))
    record = draw(structs(RECORDS[draw(st.sampled_from(topic.types))]))
    meeting = {name: draw(values) for name, values in _KNOWN.items() if name in record.__struct_fields__}
    if "notification_id" in record.__struct_fields__ and draw(st.integers(0, 9)):
        meeting["notification_id"] = identity(meeting["dedup_key"])
    profile = getattr(record, "profile", None)
    if profile is not None and draw(st.booleans()):
        meeting["profile"] = replace(
            profile, addresses={"push": "p", "chat": "c"}, quiet_hours=None, time_zone=None, consent={}, preferences={}
        )
    return topic, replace(record, **meeting)


def answered(delivery: Delivery, now: int, draw: st.DrawFn) -> Outcome:
    """Any answer to a claim."""
    return replace(
        draw(structs(Outcome)),
        notification_id=delivery.notification_id,
        recipient=delivery.recipient,
        dedup_key=delivery.dedup_key,
        step_no=delivery.step_no,
        claim=draw(st.sampled_from([delivery.claim, 0])),
    )


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=60)
@given(st.data())
def test_any_records_in_any_order_are_decided(data: st.DataObject) -> None:
    """Records of the contract with any content, claims answered with anything, time that passes: every output can be
    read by its reader, every state can be stored and read back."""
    engine = MemoryEngine(decide, LADDERS, start=NOON, quiet=True)
    claims: list[Delivery] = []
    for number in range(data.draw(st.integers(1, 12))):
        if claims and data.draw(st.booleans()):
            record: AnyRecord = answered(data.draw(st.sampled_from(claims)), engine.now, data.draw)
            topic = next(t for t in PROCESSOR_INPUTS if record.TYPE in t.types)
        else:
            topic, record = data.draw(inputs())
        ce_id = str(data.draw(st.integers(0, number)))
        assert not isinstance(record, type(None))
        headers: list[tuple[str, bytes | None]] = list(to_headers(Envelope(ce_id, record.TYPE, "/t", engine.now)))
        if data.draw(st.booleans()):
            headers.append(("rung_set_aside_at", data.draw(st.none() | st.binary(max_size=20) | st.just(b"5"))))
        written = engine.feed(topic, encode_key(record.recipient), encode(record), headers)
        written += engine.advance_to(engine.now + data.draw(st.sampled_from([0, 1_000, 60_000, 86_400_000])))
        for output in (item.record for item in written):
            assert output.topic in CATALOGUE
            if output.topic is DEAD_LETTERS or (output.topic is RECIPIENTS and output.value is None):
                continue
            read = decode(output.topic, output.key, output.value, output.headers).record
            if isinstance(read, Delivery):
                claims.append(read)
    for state in engine.states.values():
        assert encode_state(decode_state(state)) == state


@settings(max_examples=100)
@given(
    st.sampled_from(PROCESSOR_INPUTS),
    st.none() | st.binary(max_size=12) | st.just(b"ada"),
    st.none() | st.binary(max_size=80) | inputs().map(lambda found: encode(found[1])),
    st.lists(
        st.tuples(
            st.sampled_from(["ce_id", "ce_type", "ce_source", "ce_specversion", "ce_time", "rung_set_aside_at", "x"]),
            st.none() | st.binary(max_size=12) | st.sampled_from([b"1.0", b"1", *map(str.encode, RECORDS)]),
        )
    ),
)
def test_any_bytes_are_decided_or_set_aside(
    topic: Topic, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    """Key, value and headers of any bytes: what is no record is one dead letter, byte for byte, and the next record of
    the partition is decided."""
    engine = MemoryEngine(decide, LADDERS, start=NOON, quiet=True)
    written = [item.record for item in engine.feed(topic, key, value, headers)]
    letters = [output for output in written if output.topic is DEAD_LETTERS]
    assert len(letters) <= 1
    assert all((letter.key, letter.value) == (key, value) for letter in letters)
    good = next(iter(RECORDS.values()))(
        notification_id=identity("after"), recipient="bob", kind="payment", dedup_key="after"
    )
    after = engine.send(good, "after")  # type: ignore[arg-type]
    assert any(item.record.key == b"bob" for item in after)


@st.composite
def damaged(draw: st.DrawFn, value: bytes) -> bytes:
    """A value with some bytes cut, put in, replaced or doubled: most are almost a record."""
    start = draw(st.integers(0, len(value)))
    end = draw(st.integers(start, min(len(value), start + 8)))
    middle = draw(
        st.binary(max_size=4)
        | st.sampled_from([b"", b"null", b"-1", b"1e400", b'"', b"\xff", b"{", b"[[", b"9" * 30, value[start:end] * 2])
    )
    return value[:start] + middle + value[end:]


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=60)
@given(st.data())
def test_damaged_records_in_the_middle_of_a_history(data: st.DataObject) -> None:
    """On the state of any history: what the codec refuses is exactly one dead letter, byte for byte, with the codec's
    reason, and leaves every state as it was; what it still can read is decided, and the state can be stored."""
    engine = MemoryEngine(decide, LADDERS, start=NOON, quiet=True)
    for number in range(data.draw(st.integers(1, 10))):
        topic, record = data.draw(inputs())
        assert not isinstance(record, DeliveryEvent)
        headers: list[tuple[str, bytes | None]] = list(to_headers(Envelope(str(number), record.TYPE, "/t", NOON)))
        key, value = encode_key(record.recipient), encode(record)
        if data.draw(st.booleans()):
            value = data.draw(damaged(value))
        if data.draw(st.integers(0, 4)) == 0:
            key = data.draw(damaged(key))
        if data.draw(st.integers(0, 4)) == 0:
            at = data.draw(st.integers(0, len(headers) - 1))
            headers[at] = (headers[at][0], data.draw(st.none() | damaged(headers[at][1] or b"")))
        before = engine.states
        written = [item.record for item in engine.feed(topic, key, value, headers)]
        refused: DeadReason | None = None
        try:
            decode(topic, key, value, headers)
        except DecodeError as error:
            refused = error.reason
        if refused is not None:
            (letter,) = written
            assert (letter.topic, letter.key, letter.value) == (DEAD_LETTERS, key, value)
            assert dict(letter.headers)["rung_dl_reason"] == refused.encode()
            assert engine.states == before
    for state in engine.states.values():
        assert encode_state(decode_state(state)) == state
