"""What cannot be understood becomes one dead letter on every input, byte for byte, and the partition goes on."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

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
from tests.support.engine import EngineUnderTest, RawRecord, notify, raw

ADA = b"ada"
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


def bad_records(good: AnyRecord) -> dict[str, tuple[str, RawRecord]]:
    """By what is wrong: the reason that is told, and the record."""
    _, value, headers = raw(good, "bad")
    assert value is not None
    without_type = {name: text for name, text in headers.items() if name != "ce_type"}
    return {
        "no JSON": ("not_json", (ADA, b"{not json", headers)),
        "an empty value": ("not_json", (ADA, b"", headers)),
        "no UTF-8": ("not_utf8", (ADA, b'{"recipient":"\xff\xfe"}', headers)),
        "a lone surrogate": ("not_json", (ADA, b'{"recipient":"\\ud800"}', headers)),
        "too deep": ("not_json", (ADA, b'{"later":' + b"[" * 100_000, headers)),
        "1 MB of nothing": ("not_json", (ADA, b"x" * 1_048_000, headers)),
        "a field of another type": ("bad_field", (ADA, b'{"recipient":5}', headers)),
        "another shape": ("bad_field", (ADA, b"[1]", headers)),
        "a null value": ("null_value", (ADA, None, headers)),
        "no key": ("null_key", (None, value, headers)),
        "an empty key": ("null_key", (b"", value, headers)),
        "a key that is no UTF-8": ("key_not_utf8", (b"\xff\x00", value, headers)),
        "another's key": ("key_mismatch", (b"bob", value, headers)),
        "an unknown type": ("unknown_type", (ADA, value, {**headers, "ce_type": b"rung.tomorrow"})),
        "a type of another topic": ("unknown_type", (ADA, value, {**headers, "ce_type": b"rung.delivery"})),
        "no headers": ("missing_header", (ADA, value, {})),
        "no type": ("missing_header", (ADA, value, without_type)),
        "a header that is no UTF-8": ("bad_header", (ADA, value, {**headers, "ce_source": b"\xff"})),
        "a time that is none": ("bad_header", (ADA, value, {**headers, "ce_time": b"yesterday"})),
        "all null": ("null_key", (None, None, {})),
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
