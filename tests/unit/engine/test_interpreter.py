"""Commands become records: topics, keys, ids and headers."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from processor.domain.model import Deliver, PublishProfile, SetAside, WakeAt
from processor.engine.interpreter import interpret
from processor.engine.port import InputRecord, OutputRecord
from schemas import records as r
from schemas.codec import decode
from schemas.profile import Profile
from schemas.reasons import DeadReason
from schemas.topics import DELIVERIES, NOTIFICATIONS, OUTCOMES, OVERSHOOT_MS, RECIPIENTS, TIERS, Tier

RECORD = InputRecord(NOTIFICATIONS, 3, 17, 0, b"ada", b"original", [("ce_id", b"x"), ("odd", None)])
NOW = 1_777_636_800_000
DELIVERY = r.Delivery(
    notification_id=UUID(int=5),
    recipient="ada",
    kind="payment",
    dedup_key="k",
    step_no=1,
    channel="email",
    address="ada@example.test",
    template="payment",
    attempt=1,
    claim=1,
    key="5:1",
    claimed_at=NOW,
    claim_deadline=NOW + 30_000,
    due_at=NOW,
    expires_at=NOW + 60_000,
)


def header(record: OutputRecord, name: str) -> bytes | None:
    """A header of an output."""
    return dict(record.headers).get(name)


def test_a_claim_has_an_id_of_its_own_and_a_repeat_has_the_same() -> None:
    """`ce_id` comes from key and claim: the same claim written again can be dropped, the next claim can not."""
    again = msgspec.structs.replace(DELIVERY, claim=2)
    first, repeat, second = interpret([Deliver(delivery=d) for d in (DELIVERY, DELIVERY, again)], RECORD, NOW)
    assert header(first, "ce_id") == header(repeat, "ce_id") != header(second, "ce_id")
    decoded = decode(DELIVERIES, first.key, first.value, list(first.headers))
    assert decoded.record == DELIVERY
    assert decoded.envelope.time == NOW


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.name)
def test_a_wait_of_just_a_tier_goes_there(tier: Tier) -> None:
    """A wait as long as a tier goes to it, and so does one that is short of it by a moment; not by more than that."""
    before = TIERS[max(TIERS.index(tier) - 1, 0)]
    due = NOW + tier.delay_ms
    moments = (due, due - OVERSHOOT_MS, due - OVERSHOOT_MS - 1)
    exact, short, less = interpret([WakeAt(recipient="ada", due_at=at) for at in moments], RECORD, NOW)
    assert (exact.topic.name, short.topic.name, less.topic.name) == (tier.topic, tier.topic, before.topic)
    assert header(exact, "due_at") == str(due).encode()


def test_an_overdue_wait_goes_to_the_shortest_tier() -> None:
    """A moment that has passed is not an error."""
    (record,) = interpret([WakeAt(recipient="ada", due_at=NOW - 5)], RECORD, NOW)
    assert record.topic.name == "delay.1s"


def test_a_profile_and_its_tombstone() -> None:
    """A profile is published whole; an erased recipient is a null value under the same key, with a type."""
    put, erased = interpret(
        [
            PublishProfile(recipient="ada", profile=Profile(locale="de"), dead_contacts={}),
            PublishProfile(recipient="ada", profile=None, dead_contacts={}),
        ],
        RECORD,
        NOW,
    )
    decoded = decode(RECIPIENTS, put.key, put.value, list(put.headers))
    assert decoded.record == r.RecipientProfile(recipient="ada", profile=Profile(locale="de"))
    assert (erased.key, erased.value, header(erased, "ce_type")) == (b"ada", None, b"rung.recipient")


def test_a_record_set_aside_is_the_input_itself() -> None:
    """Key, value and headers as they came, a null header as an empty one, and where it was read."""
    (letter,) = interpret([SetAside(reason=DeadReason.CONFLICT, detail="why")], RECORD, NOW)
    assert (letter.key, letter.value) == (b"ada", b"original")
    assert letter.headers[:2] == [("ce_id", b"x"), ("odd", b"")]
    marks = {name.removeprefix("rung_dl_"): value for name, value in letter.headers[2:]}
    assert marks == {
        "reason": b"conflict",
        "detail": b"why",
        "topic": b"notifications",
        "partition": b"3",
        "offset": b"17",
        "service": b"processor",
        "at": str(NOW).encode(),
    }


def test_what_is_given_up_is_the_request_made_again() -> None:
    """The input was an answer or a wake-up; the dead letter is a request that can be put back, with its count."""
    request = r.Notify(notification_id=UUID(int=5), recipient="ada", kind="payment", dedup_key="k", data={"n": 1})
    aside = SetAside(reason=DeadReason.UNDELIVERABLE, detail="why", notify=request, redrives=2)
    (letter,) = interpret([aside], msgspec.structs.replace(RECORD, topic=OUTCOMES), NOW)
    decoded = decode(NOTIFICATIONS, letter.key, letter.value, list(letter.headers))
    assert decoded.record == request
    assert header(letter, "rung_dl_topic") == b"notifications"
    assert header(letter, "rung_redrives") == b"2"
    (first,) = interpret([msgspec.structs.replace(aside, redrives=0)], RECORD, NOW)
    assert header(first, "rung_redrives") is None
    assert header(first, "ce_id") != header(letter, "ce_id")
