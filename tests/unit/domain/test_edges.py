"""Order, ids, numbers and states at the edge: what waits is woken, what differs has another id, nothing overflows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from processor.domain.model import Emit, NotifyReceived, OutcomeReceived
from schemas.codec import decode_state, encode, encode_state
from schemas.profile import Profile, QuietHours
from schemas.reasons import DeadReason, Reason
from schemas.records import EventType as E
from schemas.records import Notify, Outcome, UnknownPolicy
from schemas.records import OutcomeKind as O
from schemas.state import End, Ladder, StepState
from tests.support.recipient import ADA, MINUTE, NOON, REACHABLE, Player, identity, ladder

HUGE = 10**40


def ready(**profile: object) -> Player:
    """A recipient with addresses on every channel."""
    player = Player()
    player.put(Profile(addresses=REACHABLE.addresses, **profile))  # type: ignore[arg-type]
    player.commands.clear()
    return player


def ids(player: Player) -> list[str]:
    """The ids of all events so far."""
    return [c.event_id for c in player.commands if isinstance(c, Emit)]


def test_a_claim_handed_back_again_and_again_rests_in_between() -> None:
    """At once the first time; then a few seconds, or a worker with a fast clock would turn it in a circle."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    player.answer(player.deliveries[-1], O.UNCLAIMED)
    assert len(player.deliveries) == 2
    player.answer(player.deliveries[-1], O.UNCLAIMED)
    player.advance(NOON + 4_999)
    assert len(player.deliveries) == 2
    player.advance(NOON + 5_000)
    assert [(d.attempt, d.claim) for d in player.deliveries] == [(1, 1), (1, 2), (1, 3)]
    assert player.events(E.STEP_CLAIMED)[-1].reason == Reason.UNCLAIMED


def test_a_strict_kind_waits_for_a_step_that_rests() -> None:
    """It has begun, although no attempt of it counts."""
    strict = ladder(("push", 0), ordering="strict")
    player = ready()
    player.notify("k1", strict)
    player.answer(player.deliveries[-1], O.UNCLAIMED)
    player.answer(player.deliveries[-1], O.UNCLAIMED)
    player.notify("k2", strict)
    assert {d.dedup_key for d in player.deliveries} == {"k1"}
    player.advance(NOON + 5_000)
    player.answer(player.deliveries[-1], O.SENT)
    assert [d.dedup_key for d in player.deliveries] == ["k1", "k1", "k1", "k2"]


@pytest.mark.parametrize("end", ["expires", "resolved", "erased"])
def test_a_strict_step_is_freed_by_any_end_of_the_one_before(end: str) -> None:
    """It has no time of its own to wake at: whatever concludes the earlier step frees it in the same decision."""
    player = ready()
    player.notify("k1", ladder(("push", 0), ordering="strict", expires_after_ms=MINUTE))
    player.answer(player.deliveries[0], O.FAILED, retry_after_ms=10 * MINUTE)
    player.notify("k2", ladder(("push", 0), ordering="strict"))
    player.wait(0.9)
    assert len(player.deliveries) == 1
    if end == "expires":
        player.wait(0.1)
    elif end == "resolved":
        player.resolve("k1")
    else:
        player.erase()
        assert player.notification("k2").ended is End.ERASED
        return
    assert [d.dedup_key for d in player.deliveries] == ["k1", "k2"]


def test_a_strict_step_that_waits_twice_says_so_twice() -> None:
    """Held back, moved by quiet hours, and held back in the morning: two facts with two ids."""
    strict = ladder(("push", 0), ordering="strict", expires_after_ms=24 * 60 * MINUTE)
    player = ready()
    player.notify("k1", strict)
    player.answer(player.deliveries[0], O.FAILED, retry_after_ms=2 * MINUTE)
    player.notify("k2", strict)
    player.put(Profile(addresses=REACHABLE.addresses, quiet_hours=QuietHours(from_="12:01", until="13:00")))
    player.advance(NOON + 70 * MINUTE)
    player.answer(player.deliveries[-1], O.SENT)
    waits = [e.due_at for e in player.events(E.STEP_DEFERRED) if e.reason == Reason.WAITING_FOR_ORDER]
    assert len(waits) >= 1
    assert len(set(ids(player))) == len(ids(player))


def test_one_end_of_quiet_hours_may_move_a_step_twice() -> None:
    """As planned at acceptance, and again once it was promoted into the quiet hours: two events, two ids."""
    player = ready(quiet_hours=QuietHours(from_="12:05", until="13:00"))
    player.notify()
    player.answer(player.deliveries[0], O.SENT)
    player.wait(6)
    player.answer(replace(player.deliveries[0], claim=0), O.BOUNCED)
    moved = [(e.step_no, e.next_due_at) for e in player.events(E.STEP_DEFERRED)]
    assert moved == [(1, NOON + 60 * MINUTE)] * 2
    assert len(set(ids(player))) == len(ids(player))


def test_one_step_may_promote_the_next_one_twice() -> None:
    """Refused by its second claim, sent by its first after all, and bounced: the next step, which quiet hours had moved
    back, is promoted again, and that is another fact."""
    player = ready(quiet_hours=QuietHours(from_="12:01", until="12:09"))
    player.notify()
    player.wait(0.99)
    first, second = player.deliveries
    player.wait(0.1)
    player.answer(second, O.REJECTED, contact_alive=True)
    player.answer(first, O.SENT)
    player.wait(0.1)
    player.answer(replace(first, claim=0), O.BOUNCED)
    assert [e.due_at for e in player.events(E.STEP_PROMOTED)] == [NOON + 10 * MINUTE, NOON + 9 * MINUTE]
    assert len(set(ids(player))) == len(ids(player))


def test_a_refusal_does_not_hurry_what_follows_a_step_that_has_left() -> None:
    """The chat went out while the push was being retried: its refusal leaves the e-mail at its time."""
    player = ready()
    player.notify()
    player.answer(player.deliveries[0], O.FAILED, retry_after_ms=15 * MINUTE)
    player.wait(10)
    player.answer(player.deliveries[-1], O.SENT)
    player.wait(5)
    player.answer(player.deliveries[-1], O.REJECTED)
    assert [d.channel for d in player.deliveries] == ["push", "chat", "push"]
    assert player.events(E.STEP_PROMOTED) == []


def test_a_refusal_does_not_hurry_what_follows_a_step_in_flight() -> None:
    """The chat is in a worker's hands: the e-mail keeps its time."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("chat", 0), ("email", 120)))
    player.answer(player.deliveries[0], O.REJECTED)
    assert [d.channel for d in player.deliveries] == ["push", "chat"]


def test_a_refusal_hurries_the_next_one_that_can_still_go() -> None:
    """The chat has failed for good: the e-mail is what breaks the silence."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("chat", 0), ("email", 120)))
    push, chat = player.deliveries
    player.answer(chat, O.REJECTED)
    player.answer(push, O.REJECTED)
    assert [d.channel for d in player.deliveries] == ["push", "chat", "email"]
    assert len(player.events(E.STEP_PROMOTED)) == 1


def test_a_refusal_does_not_shorten_the_retry_of_the_next_one() -> None:
    """Its provider said when to come back; that wins."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("chat", 0)))
    push, chat = player.deliveries
    player.answer(chat, O.FAILED, retry_after_ms=5 * MINUTE)
    player.answer(push, O.REJECTED)
    player.advance(NOON + 5 * MINUTE - 1)
    assert len(player.deliveries) == 2
    assert player.events(E.STEP_PROMOTED) == []


def test_the_end_of_an_unknown_kind_is_not_the_end_of_the_corrected_request() -> None:
    """Refused as unknown, corrected, and dead in the end: two facts, two ids."""
    player = Player()
    player.notify(using=None)
    player.notify()
    assert [e.reason for e in player.events(E.DEAD)] == [Reason.UNKNOWN_KIND, Reason.NO_ADDRESS]
    assert len(set(ids(player))) == len(ids(player))


def test_a_ladder_without_steps_is_no_ladder() -> None:
    """Such a kind cannot be told to anyone: it is refused like an unknown one."""
    player = ready()
    assert player.notify(using=Ladder(kind="empty", steps=())).reason is Reason.UNKNOWN_KIND
    assert player.state is not None
    assert player.state.notifications == {}


def test_a_key_that_comes_again_after_its_retention_has_events_of_its_own() -> None:
    """The first one has left the state; readers that drop repeats must not drop the second ladder."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    player.answer(player.deliveries[-1], O.SENT)
    player.wait(8 * 24 * 60)
    player.notify(using=ladder(("push", 0)))
    player.answer(player.deliveries[-1], O.SENT)
    assert player.event_types().count("notification.accepted") == 2
    assert len(set(ids(player))) == len(ids(player))


def test_one_id_under_two_dedup_keys_is_a_conflict() -> None:
    """They would share the keys of their attempts, and a provider would drop the second message as a repeat."""
    player = ready()
    player.notify("k1")
    request = Notify(notification_id=identity("k1"), recipient=ADA, kind="payment", dedup_key="k2")
    for ce_id in ("a", "b"):
        event = NotifyReceived(ce_id=ce_id, notify=request, ladder=ladder(("push", 0)))
        assert player.feed(event).reason is Reason.CONFLICT
    assert [s.reason for s in player.set_aside] == [DeadReason.CONFLICT] * 2
    assert "another dedup key" in player.set_aside[0].detail
    assert [e.dedup_key for e in player.events(E.CONFLICT)] == ["k1", "k1"]
    assert len(player.deliveries) == 1


def test_an_erasure_keeps_a_resolution_that_waits_and_not_its_word() -> None:
    """Resolved absorbs: no order of events brings the message back, and no word about the person stays."""
    player = ready()
    player.resolve()
    player.erase()
    assert "paid" not in str(player.state)
    player.put()
    assert player.notify().reason is Reason.RESOLVED_EARLY
    assert player.deliveries == []
    assert player.events(E.RESOLVED)[0].detail is None


def test_a_reason_of_a_later_release_is_no_fault() -> None:
    """After a step back to this release, a stored reason may be unknown: the ladder ends all the same."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("chat", 10)))
    notification = player.notification()
    last = replace(notification.steps[1], state=StepState.SUPPRESSED, reason="of_tomorrow")
    changed = replace(notification, steps=(notification.steps[0], last))
    assert player.state is not None
    player.state = replace(player.state, notifications={"k1": changed})
    player.answer(player.deliveries[0], O.REJECTED)
    assert player.notification().ended is End.DEAD
    assert player.events(E.DEAD)[0].reason == Reason.LADDER_ENDED


@pytest.mark.parametrize("kind", [O.FAILED, O.UNKNOWN, None])
def test_an_open_notification_without_its_ladder_is_no_fault(kind: O | None) -> None:
    """Such a state is never written here; should one come, the ladder ends and nothing is sent."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("chat", 10)))
    assert player.state is not None
    player.state = replace(player.state, notifications={"k1": replace(player.notification(), ladder=None)})
    if kind is not None:
        player.answer(player.deliveries[0], kind, unknown_policy=UnknownPolicy.RESEND)
    player.wait(3 * 60)
    assert player.notification().ended is not None
    assert len(player.deliveries) == 1


@pytest.mark.parametrize("number", [HUGE, -HUGE, 2**63, -(2**63) - 1])
def test_no_number_from_outside_is_too_large(number: int) -> None:
    """Retry-After, counts and expiry beyond 64 bits: bounded moments, and everything can be stored and published."""
    player = ready()
    player.notify("k0", ladder(("push", 0)), expires_at=number)
    player.notify("k1", ladder(("push", 0)), data={"n": number})
    claim = player.deliveries[-1]
    report = Outcome(
        notification_id=identity("k1"),
        recipient=ADA,
        dedup_key="k1",
        step_no=0,
        channel="push",
        attempt=number,
        claim=claim.claim,
        key=claim.key,
        outcome=O.FAILED,
        retry_after_ms=number,
        latency_ms=number,
        at=number,
    )
    assert player.feed(OutcomeReceived(outcome=report)).reason is Reason.RETRY_AFTER
    player.feed(OutcomeReceived(outcome=replace(report, step_no=number)))
    player.feed(OutcomeReceived(outcome=replace(report, claim=number, outcome=O.DELIVERED)))
    assert player.state is not None
    assert decode_state(encode_state(player.state)) == player.state
    moments = [n.expires_at for n in player.state.notifications.values()]
    for event in player.events():
        assert encode(event)
        moments += [at for at in (event.due_at, event.next_due_at, event.expires_at, event.at) if at is not None]
        assert all(0 <= count < 2**31 for count in (event.attempt or 0, event.latency_ms or 0))
    assert all(0 <= at <= NOON + 366 * 24 * 60 * MINUTE for at in [*moments, *player.wakes])


def test_an_expiry_before_all_time_is_in_the_past() -> None:
    """It is accepted and expired, like any other that comes too late."""
    player = ready()
    player.notify(expires_at=-HUGE)
    assert player.notification().ended is End.EXPIRED
    assert player.notification().expires_at == 0


def test_what_the_worker_saw_expired_ends_as_expired() -> None:
    """Its clock was ahead: the step is over, and the notification ends by the expiry's own wake-up."""
    player = ready()
    player.notify(using=ladder(("push", 0)), expires_at=NOON + MINUTE)
    assert player.answer(player.deliveries[0], O.SUPPRESSED, reason="expired").reason is Reason.EXPIRED
    assert player.notification().ended is None
    player.wait(1)
    assert player.notification().ended is End.EXPIRED
    assert player.set_aside == []


def test_consent_that_the_worker_saw_withdrawn_ends_the_ladder() -> None:
    """The only step is over, and nobody's fault; no attempt was used."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    player.answer(player.deliveries[0], O.SUPPRESSED, reason="consent_withdrawn")
    assert player.notification().ended is End.FINISHED
    assert player.notification().steps[0].attempts == 0
    assert player.set_aside == []


def test_a_stop_of_a_later_worker_is_read_as_a_resolution() -> None:
    """A reason that this release does not know stops the step and ends nothing."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    assert player.answer(player.deliveries[0], O.SUPPRESSED, reason="of_tomorrow").reason is Reason.RESOLVED
    assert player.notification().ended is None


def test_the_provider_of_an_unknown_answer_is_kept() -> None:
    """It alone knows the key; a later report without a provider does not lose it."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    player.answer(player.deliveries[-1], O.UNKNOWN, unknown_policy=UnknownPolicy.LOOKUP, provider="p1")
    player.wait(0.1)
    player.answer(player.deliveries[-1], O.UNKNOWN, unknown_policy=UnknownPolicy.LOOKUP)
    player.wait(0.1)
    third = player.deliveries[-1]
    assert (third.attempt, third.provider, third.lookup) == (3, "p1", True)
