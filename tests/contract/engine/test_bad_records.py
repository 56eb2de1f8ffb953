"""What cannot be understood becomes one dead letter on every input, byte for byte, and the partition goes on."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from schemas import records as r
from schemas.codec import AnyRecord
from schemas.dead_letters import PREFIX
from schemas.envelope import Headers
from schemas.topics import (
    DEAD_LETTERS,
    DELIVERY_EVENTS,
    DUE,
    NOTIFICATIONS,
    OUTCOMES,
    PROCESSOR_INPUTS,
    RESOLUTIONS,
)
from tests.support.bad_records import ADA, bad_records
from tests.support.engine import EngineUnderTest, StartOnKafka, notify, raw
from tests.support.kafka import produce_compressed

GOOD: dict[str, AnyRecord] = {
    NOTIFICATIONS.name: notify("ada", "good"),
    RESOLUTIONS.name: r.Resolve(recipient="ada", dedup_key="good", resolution="paid"),
    DUE.name: r.Due(recipient="ada", due_at=5),
    OUTCOMES.name: r.Outcome(
        notification_id=UUID(int=7),
        recipient="ada",
        dedup_key="good",
        step_no=0,
        channel="email",
        key="key",
        outcome=r.OutcomeKind.SENT,
        at=1,
    ),
}


def unmarked(headers: Headers) -> Headers:
    """The headers of a dead letter that came with the record."""
    return sorted((name, value) for name, value in headers if not name.startswith(PREFIX))


def pairs(headers: Mapping[str, str | bytes]) -> Headers:
    """Headers as they are read back."""
    return sorted((name, value if isinstance(value, bytes) else value.encode()) for name, value in headers.items())


def test_bad_records_become_one_dead_letter_each(engine: EngineUnderTest) -> None:
    """Every kind of bad record on every input: one dead letter with its reason, its bytes and its headers; good ones
    before and after get through."""
    cases = {topic.name: bad_records(GOOD[topic.name]) for topic in PROCESSOR_INPUTS}
    for topic in PROCESSOR_INPUTS:
        bad = [record for _, record in cases[topic.name].values()]
        engine.send(topic, [raw(GOOD[topic.name], "before"), *bad, raw(GOOD[topic.name], "after")])
    letters = engine.written(DEAD_LETTERS, sum(map(len, cases.values())))
    events = engine.written(DELIVERY_EVENTS, 2 * len(PROCESSOR_INPUTS))
    assert sorted(e.event.attempt or 0 for e in events) == list(range(1, 2 * len(PROCESSOR_INPUTS) + 1))
    for name, bad_of_topic in cases.items():
        from_here = [letter for letter in letters if letter.header(PREFIX + "topic") == name]
        assert len(from_here) == len(bad_of_topic)
        for what, (reason, (key, value, headers)) in bad_of_topic.items():
            matching = [x for x in from_here if (x.key, x.value, unmarked(x.headers)) == (key, value, pairs(headers))]
            assert [x.header(PREFIX + "reason") for x in matching] == [reason], f"{what} on {name}"


def test_a_dead_letter_that_comes_back_is_set_aside_once_more(engine: EngineUnderTest) -> None:
    """A redriven record that fails again is one dead letter more, with one set of marks, and not a cycle."""
    engine.send(NOTIFICATIONS, [(ADA, b"{", raw(GOOD["notifications"], "bad")[2])])
    (first,) = engine.written(DEAD_LETTERS, 1)
    engine.send(NOTIFICATIONS, [(first.key, first.value, dict(first.headers))])
    first, second = engine.written(DEAD_LETTERS, 2)
    assert (second.key, second.value) == (first.key, first.value)
    assert [n for n, _ in second.headers] == [n for n, _ in first.headers]
    assert second.header(PREFIX + "offset") == "1"


def test_requests_beyond_the_limits_are_refused_alone(engine: EngineUnderTest) -> None:
    """A value that grows too large when it is read, a name that is too long, a state that grows too large: one dead
    letter each, the state as before, and the recipient goes on."""
    grows = b'{"notification_id":"%s","recipient":"ada","kind":"payment","dedup_key":"k","data":{"n":[%s]}}' % (
        str(UUID(int=9)).encode(),
        b",".join([b"1E15"] * 100_000),
    )
    headers = raw(GOOD["notifications"], "grows")[2]
    long_name = raw(notify("ada", "k" * 20_000), "long")
    engine.send(NOTIFICATIONS, [(ADA, grows, headers), long_name, raw(notify("ada", "fine"), "n1")])
    letters = engine.written(DEAD_LETTERS, 2)
    assert [letter.header(PREFIX + "reason") for letter in letters] == ["too_large", "too_large"]
    (event,) = engine.written(DELIVERY_EVENTS, 1)
    assert (event.event.dedup_key, event.event.attempt) == ("fine", 1)


@pytest.mark.parametrize(("key", "value"), [(3, 40_000_000), (3_000_000, 10)], ids=["value", "key"])
def test_a_record_that_is_too_large_for_the_dead_letters(on_kafka: StartOnKafka, key: int, value: int) -> None:
    """Compressed it was small enough for its topic. What fits is set aside, and the partition goes on."""
    processor = on_kafka(partitions=1)
    headers = dict(pairs(raw(GOOD[NOTIFICATIONS.name], "huge")[2]))
    topic = processor.naming(NOTIFICATIONS)
    produce_compressed(processor.bootstrap, topic, b"a" * key, b"x" * value, headers)
    processor.send(NOTIFICATIONS, [raw(GOOD[NOTIFICATIONS.name], "after")])
    processor.written(DELIVERY_EVENTS, 1)
    (letter,) = processor.written(DEAD_LETTERS, 1)
    assert (letter.value, letter.key) == (None, b"aaa" if key == 3 else None)
    assert "left out" in str(letter.header(PREFIX + "detail"))
