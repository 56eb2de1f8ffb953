"""Each rule of the domain, by example: what a person, a service or a provider does, and what must follow."""

from __future__ import annotations

import pytest

from processor.domain.model import WokeUp
from schemas.profile import Profile, QuietHours
from schemas.reasons import DeadReason, Reason
from schemas.records import EventType as E
from schemas.records import OutcomeKind as O
from schemas.records import UnknownPolicy
from schemas.state import End, RetryPolicy, StepState
from schemas.topics import CLAIM_DEADLINE_MS, CLAIM_GRACE_MS
from tests.support.recipient import ADA, MINUTE, NOON, REACHABLE, THREE, Player, key_of, ladder

LOST_AFTER = CLAIM_DEADLINE_MS + CLAIM_GRACE_MS


def ready(**profile: object) -> Player:
    """A recipient with addresses on every channel."""
    player = Player()
    player.put(Profile(addresses=REACHABLE.addresses, **profile))  # type: ignore[arg-type]
    player.commands.clear()
    return player


def send_next(player: Player) -> None:
    """The provider accepts the last claim."""
    player.answer(player.deliveries[-1], O.SENT, provider_ref="ref")


def test_the_whole_ladder_is_planned_at_acceptance() -> None:
    """All steps get their due time when the notification is accepted, and the event shows the plan."""
    player = ready()
    player.notify()
    plan = player.events(E.ACCEPTED)[0].steps
    assert plan is not None
    assert [(s.channel, s.due_at - NOON) for s in plan] == [("push", 0), ("chat", 10 * MINUTE), ("email", 120 * MINUTE)]


def test_three_steps_are_climbed_in_their_time() -> None:
    """Nobody acts: push at once, chat after ten minutes, e-mail after two hours, then the ladder is finished."""
    player = ready()
    player.notify()
    at = []
    for minutes in (0, 10, 110):
        player.wait(minutes)
        at.append((player.deliveries[-1].channel, (player.now - NOON) // MINUTE))
        send_next(player)
    assert at == [("push", 0), ("chat", 10), ("email", 120)]
    assert [d.key for d in player.deliveries] == [key_of("k1", n) for n in range(3)]
    assert player.notification().ended is End.FINISHED


@pytest.mark.parametrize("steps_before", [1, 2])
def test_a_resolution_stops_the_rest(steps_before: int) -> None:
    """After step 1 or 2: no later claim at all, one `suppressed` per remaining step, the depth is recorded."""
    player = ready()
    player.notify()
    send_next(player)
    if steps_before == 2:
        player.wait(10)
        send_next(player)
    player.wait(1)
    player.resolve()
    player.wait(3 * 60)
    assert len(player.deliveries) == steps_before
    assert [e.reason for e in player.events(E.STEP_SUPPRESSED)] == [Reason.RESOLVED] * (3 - steps_before)
    assert [e.depth for e in player.events(E.RESOLVED)] == [steps_before]


def test_a_resolution_before_its_notification_wins() -> None:
    """It is remembered, and the notification is accepted and resolved in one decision without any claim."""
    player = ready()
    assert player.resolve().reason is Reason.REMEMBERED
    player.wait(5)
    assert player.notify().reason is Reason.RESOLVED_EARLY
    player.wait(3 * 60)
    assert player.deliveries == []
    assert player.event_types()[:2] == ["notification.accepted", "notification.resolved"]
    assert len(player.events(E.STEP_SUPPRESSED)) == 3


def test_an_early_resolution_is_forgotten_after_seven_days() -> None:
    """Past its retention a new notification with that key climbs again."""
    player = ready()
    player.resolve()
    player.wait(7 * 24 * 60)
    assert player.notify().reason is Reason.ACCEPTED
    assert len(player.deliveries) == 1


def test_a_resolution_while_the_call_is_in_flight_is_too_late_for_that_step() -> None:
    """The step counts as sent, `too_late` names it, and nothing follows."""
    player = ready()
    player.notify()
    player.resolve()
    player.answer(player.deliveries[0], O.SENT, provider_ref="r")
    player.wait(3 * 60)
    assert [(e.step_no, e.reason) for e in player.events(E.TOO_LATE)] == [(0, Reason.IN_FLIGHT)]
    assert len(player.deliveries) == 1


def test_a_resolution_after_the_end_is_recorded_with_the_step_that_had_left() -> None:
    """Too late to stop anything, once; a repeat adds nothing."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    send_next(player)
    player.resolve()
    player.resolve()
    late = player.events(E.TOO_LATE)
    assert [(e.step_no, e.depth, e.reason) for e in late] == [(0, 1, Reason.ALREADY_ENDED)]


def test_the_same_request_twice_is_one_ladder() -> None:
    """Same key and same body: an event, and no second claim; the same record again: nothing at all."""
    player = ready()
    player.notify(ce_id="a", data={"x": 1, "y": 2})
    assert player.notify(ce_id="b", data={"y": 2, "x": 1}).reason is Reason.DUPLICATE
    again = player.notify(ce_id="a", data={"x": 1, "y": 2})
    assert (again.reason, again.commands) == (Reason.REDELIVERED, ())
    assert len(player.deliveries) == 1


def test_another_body_under_the_same_key_is_a_conflict() -> None:
    """The first one stands and goes on; the second is a dead letter and an event."""
    player = ready()
    player.notify(data={"x": 1})
    assert player.notify(data={"x": 2}).reason is Reason.CONFLICT
    assert [s.reason for s in player.set_aside] == [DeadReason.CONFLICT]
    assert player.deliveries[0].data == {"x": 1}
    assert player.notification().ended is None


def test_an_unknown_kind_leaves_no_trace_of_its_key() -> None:
    """It is a dead letter with an event; the corrected request with the same key, or the same record, is accepted."""
    player = ready()
    player.notify(using=None, ce_id="a")
    assert [s.reason for s in player.set_aside] == [DeadReason.UNKNOWN_KIND]
    assert [e.reason for e in player.events(E.DEAD)] == [Reason.UNKNOWN_KIND]
    assert player.notify(ce_id="a").reason is Reason.ACCEPTED


def test_a_rejection_marks_the_contact_dead_and_promotes_the_next_step() -> None:
    """The chat goes at once instead of after ten minutes; the next ladder skips push and starts with chat."""
    player = ready()
    player.notify()
    player.answer(player.deliveries[0], O.REJECTED, reason="http_410")
    assert [d.channel for d in player.deliveries] == ["push", "chat"]
    assert player.events(E.STEP_PROMOTED)[0].detail == Reason.REJECTED
    player.notify("k2")
    assert [d.channel for d in player.deliveries] == ["push", "chat", "chat"]
    assert [e.reason for e in player.events(E.STEP_SUPPRESSED)] == [Reason.CONTACT_DEAD]


def test_a_new_address_is_not_dead() -> None:
    """The refusal is about an address: a profile with another one is tried again."""
    player = ready()
    player.notify()
    player.answer(player.deliveries[0], O.REJECTED, reason="http_410")
    player.put(Profile(addresses={**REACHABLE.addresses, "push": "token-2"}))
    player.notify("k2")
    assert (player.deliveries[-1].channel, player.deliveries[-1].address) == ("push", "token-2")


def test_a_refusal_of_an_old_address_does_not_kill_the_new_one() -> None:
    """The profile changed while the call was under way."""
    player = ready()
    player.notify()
    player.put(Profile(addresses={**REACHABLE.addresses, "push": "token-2"}))
    player.answer(player.deliveries[0], O.REJECTED, reason="http_410")
    player.notify("k2")
    assert player.deliveries[-1].address == "token-2"


def test_a_refused_message_does_not_kill_the_contact() -> None:
    """A template that fails says nothing about the address; the ladder still goes on at once."""
    player = ready()
    player.notify()
    player.answer(player.deliveries[0], O.REJECTED, reason="bad_template", contact_alive=True)
    player.notify("k2")
    assert [d.channel for d in player.deliveries] == ["push", "chat", "push"]


def test_two_failures_then_sent_with_the_same_key_and_exact_backoff() -> None:
    """Transient twice: attempts at 0, 1 and 3 seconds, one key."""
    player = ready()
    player.notify()
    for seconds in (1, 2):
        player.answer(player.deliveries[-1], O.FAILED, reason="http_503")
        player.wait(seconds / 60)
    send_next(player)
    assert [(d.attempt, d.claimed_at - NOON) for d in player.deliveries] == [(1, 0), (2, 1000), (3, 3000)]
    assert len({d.key for d in player.deliveries}) == 1
    assert [e.next_due_at for e in player.events(E.STEP_FAILED)] == [NOON + 1000, NOON + 3000]


def test_attempts_are_bounded_and_the_end_is_dead() -> None:
    """After max_attempts failures the step is over; nothing was sent, so the notification is dead and set aside."""
    player = ready()
    player.notify(using=ladder(("push", 0), retry=RetryPolicy(max_attempts=4, jitter=0)))
    for _ in range(10):
        if player.notification().ended is not None:
            break
        player.answer(player.deliveries[-1], O.FAILED, reason="http_503")
        player.wait(0.2)
    assert len(player.deliveries) == 4
    assert player.notification().ended is End.DEAD
    assert [s.reason for s in player.set_aside] == [DeadReason.UNDELIVERABLE]
    assert player.set_aside[0].notify is not None


def test_retry_after_wins_over_the_backoff() -> None:
    """The provider said 42 seconds."""
    player = ready()
    player.notify()
    player.answer(player.deliveries[0], O.FAILED, reason="http_429", retry_after_ms=42_000)
    player.advance(NOON + 41_999)
    assert len(player.deliveries) == 1
    player.advance(NOON + 42_000)
    assert len(player.deliveries) == 2


def test_expiry_ends_a_step_whatever_attempts_remain() -> None:
    """Its own expiry comes before the next attempt and before the later steps."""
    player = ready()
    player.notify(expires_at=NOON + 5 * MINUTE)
    player.answer(player.deliveries[0], O.FAILED, reason="http_429", retry_after_ms=10 * MINUTE)
    player.wait(3 * 60)
    assert len(player.deliveries) == 1
    assert player.notification().ended is End.EXPIRED
    assert [e.reason for e in player.events(E.STEP_SUPPRESSED)] == [Reason.EXPIRED] * 3


def test_a_notification_that_comes_expired_is_accepted_and_expired() -> None:
    """No claim, but both events: it is accounted for."""
    player = ready()
    player.notify(expires_at=NOON - 1)
    assert player.deliveries == []
    assert player.event_types()[:2] == ["notification.accepted", "notification.expired"]


def test_quiet_hours_move_a_step_and_never_drop_it() -> None:
    """Accepted at noon, quiet from 11:00 to 13:00: push goes at 13:00, chat too, e-mail at 14:00 as planned."""
    player = ready(quiet_hours=QuietHours(from_="11:00", until="13:00"))
    player.notify()
    assert player.deliveries == []
    assert len(player.events(E.STEP_DEFERRED)) == 2
    player.wait(60)
    assert [d.channel for d in player.deliveries] == ["push", "chat"]
    for delivery in list(player.deliveries):
        player.answer(delivery, O.SENT)
    player.wait(60)
    assert player.deliveries[-1].channel == "email"


def test_a_kind_may_ignore_quiet_hours() -> None:
    """A security code cannot wait."""
    player = ready(quiet_hours=QuietHours(from_="11:00", until="13:00"))
    player.notify(using=ladder(("push", 0), quiet_hours="ignore"))
    assert len(player.deliveries) == 1


def test_a_promoted_step_waits_for_the_end_of_quiet_hours() -> None:
    """Due now by promotion, but in the night: deferred to the morning, not dropped."""
    player = ready(quiet_hours=QuietHours(from_="12:01", until="13:00"))
    player.notify()
    player.wait(1.05)
    player.answer(player.deliveries[-1], O.REJECTED, reason="http_410")
    player.advance(NOON + 60 * MINUTE - 1)
    assert {d.channel for d in player.deliveries} == {"push"}
    player.advance(NOON + 60 * MINUTE)
    assert player.deliveries[-1].channel == "chat"


def test_consent_withdrawn_between_steps() -> None:
    """It is looked at when each step is due."""
    player = ready()
    player.notify()
    send_next(player)
    player.put(Profile(addresses=REACHABLE.addresses, consent={"payment": False}))
    player.wait(3 * 60)
    assert len(player.deliveries) == 1
    assert [e.reason for e in player.events(E.STEP_SUPPRESSED)] == [Reason.CONSENT_WITHDRAWN] * 2


def test_a_channel_switched_off_is_skipped_for_that_kind() -> None:
    """The next step does not wait for its time, since there is nothing to wait for."""
    player = ready(preferences={"payment": {"push": False}})
    player.notify()
    assert [d.channel for d in player.deliveries] == ["chat"]


def test_nobody_to_reach_is_dead_at_once() -> None:
    """No address on any channel: three suppressed steps, one dead notification, one dead letter."""
    player = Player()
    player.notify()
    assert player.deliveries == []
    assert [e.reason for e in player.events(E.STEP_SUPPRESSED)] == [Reason.NO_ADDRESS] * 3
    assert player.notification().ended is End.DEAD


def test_erasure_stops_everything_and_forgets() -> None:
    """No claim afterwards, no personal field in the state, and a tombstone on `recipients`."""
    player = ready()
    player.notify(data={"name": "Ada Lovelace"})
    send_next(player)
    player.erase()
    player.wait(3 * 60)
    assert len(player.deliveries) == 1
    assert player.state is not None
    assert player.state.profile is None
    assert "Lovelace" not in str(player.state)
    assert "example.test" not in str(player.state)
    assert player.events(E.ERASED)[0].depth == 1


def test_a_redelivered_request_does_not_bring_an_erased_person_back() -> None:
    """The relay repeats its last rows after a crash; the repeat of each is known by its id."""
    player = ready()
    player.put(ce_id="p")
    player.notify(ce_id="n")
    player.erase()
    player.put(ce_id="p")
    player.notify(ce_id="n")
    assert player.state is not None
    assert player.state.profile is None
    assert len(player.deliveries) == 1


def test_nothing_stays_for_ever() -> None:
    """A finished notification leaves the state after the retention time, by its own wake-up; an erased one too."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    send_next(player)
    player.wait(7 * 24 * 60)
    assert player.state is not None
    assert player.state.notifications == {}
    player.erase()
    player.wait(7 * 24 * 60)
    assert player.state is None


def test_a_claim_without_an_outcome_is_issued_again_with_the_same_key() -> None:
    """The worker vanished: same key, same attempt, next claim; the ladder's own times do not move."""
    player = ready()
    player.notify()
    player.advance(NOON + LOST_AFTER - 1)
    assert len(player.deliveries) == 1
    player.advance(NOON + LOST_AFTER)
    first, second = player.deliveries
    assert (second.key, second.attempt, second.claim) == (first.key, first.attempt, first.claim + 1)
    assert player.events(E.STEP_CLAIMED)[-1].reason == Reason.CLAIM_LOST


def test_a_claim_lost_after_the_end_is_concluded() -> None:
    """Resolved while claimed, and the worker vanished: the step ends as suppressed and is not claimed again."""
    player = ready()
    player.notify()
    player.resolve()
    player.wait(2)
    assert len(player.deliveries) == 1
    assert [(e.step_no, e.reason) for e in player.events(E.STEP_SUPPRESSED)][-1] == (0, Reason.RESOLVED)


def test_an_unclaimed_step_is_decided_afresh_without_using_up_an_attempt() -> None:
    """The worker came too late: claimed again at once, attempt 1 still."""
    player = ready()
    player.notify()
    player.wait(0.5)
    player.answer(player.deliveries[0], O.UNCLAIMED)
    assert [(d.attempt, d.claim) for d in player.deliveries] == [(1, 1), (1, 2)]


def test_what_the_worker_suppressed_is_not_tried_again() -> None:
    """It saw the resolution before the processor did; the resolution then ends the notification by its own name."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    player.answer(player.deliveries[0], O.SUPPRESSED, reason="resolved")
    assert player.notification().ended is None
    player.resolve()
    assert player.notification().ended is End.RESOLVED
    assert len(player.deliveries) == 1


def test_an_old_claims_failure_is_ignored_and_its_success_counts() -> None:
    """A report belongs to its claim; a fact belongs to the step."""
    player = ready()
    player.notify()
    player.advance(NOON + LOST_AFTER)
    old, new = player.deliveries
    assert player.answer(old, O.FAILED, reason="http_503").reason is Reason.STALE_OUTCOME
    assert player.answer(old, O.SENT).reason is Reason.SENT
    assert player.answer(new, O.SENT).reason is Reason.STALE_OUTCOME
    assert len(player.events(E.STEP_SENT)) == 1


@pytest.mark.parametrize(
    ("policy", "calls", "lookup"),
    [(UnknownPolicy.RESEND, 2, False), (UnknownPolicy.LOOKUP, 2, True), (UnknownPolicy.HOLD, 1, False)],
)
def test_an_unknown_answer_is_the_providers_policy(policy: UnknownPolicy, calls: int, lookup: bool) -> None:
    """Resend with the same key, ask first, or leave it; and stay with that provider."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    player.answer(player.deliveries[0], O.UNKNOWN, reason="timeout", unknown_policy=policy, provider="p1")
    player.wait(0.2)
    assert len(player.deliveries) == calls
    assert len({d.key for d in player.deliveries}) == 1
    if calls == 2:
        assert (player.deliveries[1].lookup, player.deliveries[1].provider) == (lookup, "p1")
    else:
        assert player.notification().steps[0].state is StepState.HELD


def test_stop_on_sent_ends_with_the_first_message() -> None:
    """A welcome needs to arrive once; the rest is suppressed by name."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("email", 10), stop_on="sent"))
    send_next(player)
    assert player.notification().ended is End.FINISHED
    assert [e.reason for e in player.events(E.STEP_SUPPRESSED)] == [Reason.STOPPED_BY_SENT]


def test_stop_on_delivered_waits_for_the_receipt() -> None:
    """Sent is not enough; the receipt ends it."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("email", 10), stop_on="delivered"))
    send_next(player)
    assert player.notification().ended is None
    player.answer(player.deliveries[0], O.DELIVERED)
    assert player.notification().ended is End.FINISHED
    player.wait(60)
    assert len(player.deliveries) == 1


def test_a_bounce_is_a_late_rejection() -> None:
    """The contact is dead and the next step goes at once."""
    player = ready()
    player.notify()
    send_next(player)
    player.wait(1)
    player.answer(player.deliveries[0], O.BOUNCED)
    assert [d.channel for d in player.deliveries] == ["push", "chat"]
    player.notify("k2")
    assert player.deliveries[-1].channel == "chat"


def test_first_attempts_that_are_due_together_start_in_order_of_acceptance() -> None:
    """Two notifications shifted to the same morning: whichever wake-up comes first, the first accepted goes first."""
    player = ready(quiet_hours=QuietHours(from_="11:00", until="13:00"))
    player.notify("k1", ladder(("push", 0)))
    player.wait(1)
    player.notify("k2", ladder(("push", 0)))
    player.wait(59)
    assert [d.dedup_key for d in player.deliveries] == ["k1", "k2"]


def test_strict_ordering_waits_for_the_earlier_one() -> None:
    """A retry may be overtaken by default; a strict kind waits until the earlier step is concluded."""
    strict = ladder(("push", 0), ordering="strict")
    player = ready()
    player.notify("k1", strict)
    player.answer(player.deliveries[0], O.FAILED, reason="http_503")
    player.notify("k2", strict)
    assert [e.reason for e in player.events(E.STEP_DEFERRED)] == [Reason.WAITING_FOR_ORDER]
    player.wait(0.1)
    assert [d.dedup_key for d in player.deliveries] == ["k1", "k1"]
    send_next(player)
    assert [d.dedup_key for d in player.deliveries] == ["k1", "k1", "k2"]


def test_without_strict_a_retry_is_overtaken() -> None:
    """The second notification does not wait for the first one's backoff."""
    player = ready()
    player.notify("k1", ladder(("push", 0)))
    player.answer(player.deliveries[0], O.FAILED, reason="http_503")
    player.notify("k2", ladder(("push", 0)))
    assert [d.dedup_key for d in player.deliveries] == ["k1", "k2"]


def test_a_wake_up_from_a_clock_ahead_of_ours_is_asked_for_again() -> None:
    """The delayer's machine is two seconds ahead; the wake-up finds nothing due and must not be the last one."""
    player = ready()
    player.notify()
    send_next(player)
    player.wait(1)
    due = NOON + 10 * MINUTE
    assert player.wakes == [due]
    player.wakes.clear()
    player.now = due - 2_000
    player.feed(WokeUp(recipient=ADA, due_at=due))
    assert player.wakes == [due]


def test_a_bad_profile_is_set_aside_and_the_old_one_stands() -> None:
    """An unknown time zone is refused by the field's name."""
    player = ready()
    player.put(Profile(addresses={}, time_zone="Mars/Olympus"))
    assert [s.reason for s in player.set_aside] == [DeadReason.BAD_PROFILE]
    assert "time_zone" in player.set_aside[0].detail
    assert player.state is not None
    assert player.state.profile == REACHABLE


def test_resolved_ladder_snapshot_stays() -> None:
    """A running notification keeps the ladder that it was accepted with, in its state."""
    player = ready()
    player.notify()
    assert player.notification().ladder == THREE
