"""What every engine promises (see `processor.engine.port.Engine`), held against each of them."""

from __future__ import annotations

import msgspec
import pytest

from schemas import records as r
from schemas.codec import AnyRecord
from schemas.profile import Profile
from schemas.topics import (
    DEAD_LETTERS,
    DELAYS,
    DELIVERIES,
    DELIVERY_EVENTS,
    DUE,
    NOTIFICATIONS,
    OUTCOMES,
    RECIPIENTS,
    RESOLUTIONS,
    Topic,
    tier_for,
)
from tests.support.engine import EngineUnderTest, Written, notify, raw


def counts(events: list[Written], recipient: str) -> list[int | None]:
    """The counter that each event of a recipient carries, in order."""
    return [written.event.attempt for written in events if written.event.recipient == recipient]


def topic_of(wait_ms: int) -> Topic:
    """The delay topic for a wait, out of the catalogue."""
    return next(topic for topic in DELAYS if topic.name == tier_for(wait_ms).topic)


def test_events_of_one_recipient_are_processed_in_order(engine: EngineUnderTest) -> None:
    """A hundred notifications of one person come out in the order in which they went in."""
    engine.send_records(NOTIFICATIONS, [(notify("ada", f"k{i}"), f"n{i}") for i in range(100)])
    events = engine.written(DELIVERY_EVENTS, 100)
    assert [e.event.dedup_key for e in events] == [f"k{i}" for i in range(100)]
    assert counts(events, "ada") == list(range(1, 101))


def test_recipients_are_independent(engine: EngineUnderTest) -> None:
    """Two people's events do not see each other's state, NFC and NFD spellings being two people."""
    people = ["zo\u00eb", "zoe\u0308"]
    for i in range(3):
        engine.send_records(NOTIFICATIONS, [(notify(person, f"k{i}"), f"{person}{i}") for person in people])
    events = engine.written(DELIVERY_EVENTS, 6)
    assert {person: counts(events, person) for person in people} == {person: [1, 2, 3] for person in people}


def test_all_inputs_share_one_state(engine: EngineUnderTest) -> None:
    """A recipient's events meet in one state, whichever input they came by."""
    outcome = r.Outcome(
        notification_id=notify("ada", "k").notification_id,
        recipient="ada",
        dedup_key="k",
        step_no=0,
        channel="email",
        key="key",
        outcome=r.OutcomeKind.SENT,
        at=1,
    )
    inputs: list[tuple[Topic, AnyRecord]] = [
        (NOTIFICATIONS, notify("ada", "k")),
        (RESOLUTIONS, r.Resolve(recipient="ada", dedup_key="k", resolution="paid")),
        (DUE, r.Due(recipient="ada", due_at=5)),
        (OUTCOMES, outcome),
        (NOTIFICATIONS, r.PutRecipient(recipient="ada", profile=Profile(locale="de"))),
    ]
    for number, (topic, record) in enumerate(inputs, start=1):
        engine.send_records(topic, [(record, f"c{number}")])
        assert counts(engine.written(DELIVERY_EVENTS, number), "ada") == list(range(1, number + 1))


@pytest.mark.parametrize("lose_disk", [False, True], ids=["disk kept", "disk lost"])
def test_state_survives_a_restart(engine: EngineUnderTest, lose_disk: bool) -> None:
    """What was counted before a restart is counted on from, with the local disk and without it."""
    people = [f"person-{i}" for i in range(20)]
    for round_no in range(2):
        engine.send_records(NOTIFICATIONS, [(notify(p, f"k{round_no}"), f"{p}-{round_no}") for p in people])
        engine.written(DELIVERY_EVENTS, 20 * (round_no + 1))
        engine.restart(lose_disk=lose_disk)
    engine.send_records(NOTIFICATIONS, [(notify(p, "k2"), f"{p}-2") for p in people])
    events = engine.written(DELIVERY_EVENTS, 60)
    assert {p: counts(events, p) for p in people} == {person: [1, 2, 3] for person in people}


def test_a_wait_goes_to_the_largest_tier_that_fits(engine: EngineUnderTest) -> None:
    """A wake-up lies in the right delay topic, keyed by recipient, with its absolute moment as a header."""
    waits = [1_500, 10_000, 3 * 60_000, 70 * 3_600_000]
    engine.send_records(NOTIFICATIONS, [(notify("ada", f"k{w}", wake_in_ms=w), f"n{w}") for w in waits])
    accepted = engine.written(DELIVERY_EVENTS, len(waits))
    for wait, event in zip(waits, accepted, strict=False):
        (written,) = engine.written(topic_of(wait), 1)
        due_at = event.event.at + wait
        assert written.key == b"ada"
        assert written.header("due_at") == str(due_at)
        assert written.header("ce_type") == "rung.due"
        assert written.value is not None
        assert msgspec.json.decode(written.value, type=r.Due) == r.Due(recipient="ada", due_at=due_at)


def test_a_delivery_and_its_events_come_out_once(engine: EngineUnderTest) -> None:
    """One decision's commands go to their own topics, each with an id and a type."""
    engine.send_records(NOTIFICATIONS, [(notify("ada", "k", deliver=True), "n1")])
    (delivery,) = engine.written(DELIVERIES, 1)
    (event,) = engine.written(DELIVERY_EVENTS, 1)
    assert delivery.header("ce_type") == "rung.delivery"
    assert delivery.header("ce_id")
    assert delivery.key == event.key == b"ada"
    assert (event.header("ce_id"), event.header("ce_type")) == ("n1", "rung.notification.accepted")


def test_an_erased_recipient_is_a_tombstone_and_leaves_no_state(engine: EngineUnderTest) -> None:
    """The profile is published as applied, then as a null value, and what comes later starts from nothing."""
    profile = Profile(addresses={"email": "ada@example.test"})
    engine.send_records(NOTIFICATIONS, [(r.PutRecipient(recipient="ada", profile=profile), "p1")])
    engine.send_records(NOTIFICATIONS, [(r.EraseRecipient(recipient="ada"), "e1")])
    published = engine.written(RECIPIENTS, 2)
    assert [(w.key, w.value is None) for w in published] == [(b"ada", False), (b"ada", True)]
    engine.restart(lose_disk=True)
    engine.send_records(NOTIFICATIONS, [(notify("ada", "k"), "n1")])
    assert counts(engine.written(DELIVERY_EVENTS, 3), "ada") == [1, 2, 1]


def test_what_the_domain_sets_aside_is_the_original_record(engine: EngineUnderTest) -> None:
    """A dead letter that was decided carries the input byte for byte, its headers, and where it was read."""
    record = raw(notify("ada", "k", set_aside=True), "n1")
    key, value, headers = record
    engine.send(NOTIFICATIONS, [(key, value, {**headers, "extra": b"\xff\x00"})])
    (dead,) = engine.written(DEAD_LETTERS, 1)
    assert (dead.key, dead.value) == (key, value)
    assert dict(dead.headers)["extra"] == b"\xff\x00"
    assert [dead.header(f"rung_dl_{n}") for n in ("reason", "topic", "service")] == [
        "conflict",
        "notifications",
        "processor",
    ]
    engine.send_records(NOTIFICATIONS, [(notify("ada", "k2"), "n2")])
    assert counts(engine.written(DELIVERY_EVENTS, 1), "ada") == [1], "a record set aside changed the state"


def test_a_kind_without_a_ladder_reaches_the_decision(engine: EngineUnderTest) -> None:
    """An unknown kind is the domain's to judge: the event arrives without a ladder."""
    stranger = r.Notify(
        notification_id=notify("ada", "k").notification_id, recipient="ada", kind="nobody", dedup_key="k"
    )
    engine.send_records(NOTIFICATIONS, [(stranger, "n1"), (notify("ada", "k2"), "n2")])
    events = engine.written(DELIVERY_EVENTS, 2)
    assert [e.event.kind for e in events] == ["unknown nobody", "payment"]
