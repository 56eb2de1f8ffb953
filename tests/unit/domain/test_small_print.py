"""The small print: what a word in the code decides, held by one example each."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from processor.domain.draft import SEEN_LIMIT
from processor.domain.model import Emit, PublishProfile, WakeAt, WokeUp
from schemas.profile import Profile, QuietHours
from schemas.reasons import Reason
from schemas.records import EventType as E
from schemas.records import OutcomeKind as O
from schemas.records import UnknownPolicy
from schemas.state import End, RetryPolicy, StepState
from tests.support.recipient import ADA, MINUTE, NOON, REACHABLE, THREE, Player, key_of, ladder

STRICT = ladder(("push", 0), ordering="strict")


def ready(**profile: object) -> Player:
    """A recipient with addresses on every channel."""
    player = Player()
    player.put(Profile(addresses=REACHABLE.addresses, **profile))  # type: ignore[arg-type]
    player.commands.clear()
    return player


def published(player: Player) -> list[PublishProfile]:
    """What the readers of `recipients` were told."""
    return [c for c in player.commands if isinstance(c, PublishProfile)]


def test_a_strict_retry_is_not_held_back_by_a_first_attempt() -> None:
    """Only first attempts wait their turn: one that has begun goes on, whoever is in flight."""
    player = ready()
    player.notify("k1", ladder(("push", 1)))
    player.notify("k2", STRICT)
    player.answer(player.deliveries[0], O.FAILED, retry_after_ms=MINUTE)
    player.wait(1)
    assert [d.dedup_key for d in player.deliveries] == ["k2", "k1", "k2"]


def test_a_strict_kind_waits_only_for_its_own_channel() -> None:
    """A push in flight holds back no e-mail."""
    player = ready()
    player.notify("k1", ladder(("push", 0)))
    player.notify("k2", ladder(("email", 0), ordering="strict"))
    assert [d.channel for d in player.deliveries] == ["push", "email"]


def test_a_strict_kind_does_not_wait_for_a_step_that_is_concluded() -> None:
    """The earlier ladder goes on with its other channels; its push has left."""
    player = ready()
    player.notify("k1", THREE)
    player.answer(player.deliveries[0], O.SENT)
    player.notify("k2", STRICT)
    assert [d.dedup_key for d in player.deliveries] == ["k1", "k2"]
    assert player.events(E.STEP_DEFERRED) == []


def test_a_strict_kind_does_not_wait_for_what_was_accepted_later() -> None:
    """The later one was due first and is in flight: two that waited for each other would never go."""
    player = ready()
    player.notify("k1", ladder(("push", 0.5), ordering="strict"))
    player.notify("k2", STRICT)
    player.wait(0.5)
    assert [d.dedup_key for d in player.deliveries] == ["k2", "k1"]


def test_a_strict_step_says_each_time_that_it_waits() -> None:
    """Held back, freed into quiet hours, and held back again in the morning: two facts, two ids, and then its turn."""
    player = ready()
    player.notify("k0", ladder(("push", 60)))
    player.notify("k1", STRICT)
    player.answer(player.deliveries[0], O.FAILED, retry_after_ms=10 * MINUTE)
    player.notify("k2", STRICT)
    player.put(Profile(addresses=REACHABLE.addresses, quiet_hours=QuietHours(from_="12:01", until="13:00")))
    player.wait(2)
    player.resolve("k1")
    assert player.notification("k2").steps[0].waiting is False
    player.advance(NOON + 60 * MINUTE)
    waits = [e for e in player.events(E.STEP_DEFERRED) if e.reason == Reason.WAITING_FOR_ORDER]
    assert [(e.dedup_key, e.due_at) for e in waits] == [("k2", NOON), ("k2", NOON + 60 * MINUTE)]
    ids = [c.event_id for c in player.commands if isinstance(c, Emit)]
    assert len(ids) == len(set(ids))
    player.answer(player.deliveries[-1], O.SENT)
    assert player.deliveries[-1].dedup_key == "k2"
    assert player.notification("k2").steps[0].waiting is False


def test_withdrawn_consent_hurries_nothing() -> None:
    """The person wants none of it: the later steps keep their time, and end the same way."""
    player = ready(consent={"payment": False})
    player.notify()
    assert len(player.events(E.STEP_SUPPRESSED)) == 1
    assert player.events(E.STEP_PROMOTED) == []
    player.wait(120)
    assert player.notification().ended is End.FINISHED


def test_a_step_that_is_claimed_again_carries_no_old_reason() -> None:
    """The reason is why a step ended; this one is under way."""
    player = ready()
    player.notify()
    player.answer(player.deliveries[0], O.UNCLAIMED)
    assert player.notification().steps[0].state is StepState.CLAIMED
    assert player.notification().steps[0].reason is None


def test_a_wake_up_that_is_overdue_does_not_keep_the_next_one_from_being_asked_for() -> None:
    """The delayer is behind: another event does the work, and asks for the wake-up after it."""
    player = ready()
    player.notify()
    player.answer(player.deliveries[0], O.SENT)
    player.wait(1)
    player.wakes.clear()
    player.now = NOON + 11 * MINUTE
    player.put()
    assert [d.channel for d in player.deliveries] == ["push", "chat"]
    assert len(player.wakes) == 1


def test_one_wake_up_is_enough() -> None:
    """Where an earlier one is outstanding no later one is asked for, and a stray one asks for none."""
    player = ready()
    player.notify()
    player.answer(player.deliveries[0], O.SENT)
    assert len(player.wakes) == 1
    stray = player.feed(WokeUp(recipient=ADA, due_at=NOON - 1))
    assert [c for c in stray.commands if isinstance(c, WakeAt)] == []
    assert stray.reason is Reason.NOTHING_DUE


def test_an_unchanged_state_is_the_same_object() -> None:
    """An engine need not write it."""
    player = ready()
    player.notify()
    before = player.state
    assert player.feed(WokeUp(recipient=ADA, due_at=NOON - 1)).state is before


def test_a_wake_up_that_claimed_anything_says_due() -> None:
    """Of two steps that are due together the first is claimed and the second cannot be: something was due."""
    player = Player()
    player.put(Profile(addresses={"push": "token"}))
    player.notify("k1", ladder(("push", 10)))
    player.notify("k2", ladder(("chat", 10)))
    player.wait(10)
    assert player.last is not None
    assert player.last.reason is Reason.DUE
    assert [d.dedup_key for d in player.deliveries] == ["k1"]


def test_the_order_of_acceptance_counts_and_not_the_place_in_the_state() -> None:
    """However the stored map is ordered, the earlier accepted one goes first."""
    player = ready()
    player.notify("k1", ladder(("push", 10)))
    player.notify("k2", ladder(("push", 10)))
    assert player.state is not None
    turned = dict(reversed(player.state.notifications.items()))
    player.state = replace(player.state, notifications=turned)
    player.wait(10)
    assert [d.dedup_key for d in player.deliveries] == ["k1", "k2"]


def test_a_delivery_carries_the_persons_locale() -> None:
    """The worker picks the template's language by it."""
    player = ready(locale="de")
    player.notify()
    assert player.deliveries[0].locale == "de"


def test_jitter_only_shortens_the_backoff() -> None:
    """By a share that the policy bounds, and another one for each attempt."""
    player = ready()
    player.notify(using=ladder(("push", 0), retry=RetryPolicy(max_attempts=9, base_ms=8000, cap_ms=8000, jitter=0.5)))
    waits = set()
    for _ in range(8):
        player.answer(player.deliveries[-1], O.FAILED, reason="http_503")
        waits.add(player.notification().steps[0].due_at - player.now)
        player.wait(0.2)
    assert all(4_000 <= wait < 8_000 for wait in waits)
    assert len(waits) > 1


@pytest.mark.parametrize("other", [{"using": ladder(("push", 0), kind="welcome")}, {"expires_at": NOON + MINUTE}])
def test_another_kind_or_expiry_is_another_body(other: dict[str, Any]) -> None:
    """The same key and data, but not the same request."""
    player = ready()
    player.notify()
    assert player.notify(**other).reason is Reason.CONFLICT


def test_the_memory_of_inputs_is_bounded() -> None:
    """A busy recipient's state does not grow with each record; the last ones are known."""
    player = ready()
    for number in range(SEEN_LIMIT + 5):
        player.put(ce_id=f"p{number}")
    assert player.state is not None
    assert len(player.state.seen) == SEEN_LIMIT
    assert player.put(ce_id="p5").reason is Reason.REDELIVERED
    assert player.put(ce_id="p4").reason is Reason.PROFILE_UPDATED


def test_an_early_resolution_of_a_stranger_is_remembered_and_then_used_up() -> None:
    """Nothing else is known of the recipient; a second one adds nothing, and the notification takes it out."""
    player = Player()
    assert player.resolve().reason is Reason.REMEMBERED
    player.wait(1)
    assert player.resolve().reason is Reason.ALREADY_RESOLVED
    assert player.state is not None
    assert player.state.early["k1"].at == NOON
    assert player.notify().reason is Reason.RESOLVED_EARLY
    assert player.state.early == {}


def test_an_erasure_of_a_stranger_is_remembered() -> None:
    """Its repeat is known, and so is the repeat of what came before it."""
    player = Player()
    player.put(ce_id="p")
    player.erase()
    assert player.state is not None
    assert player.put(ce_id="p").reason is Reason.REDELIVERED
    stranger = Player()
    stranger.erase()
    assert stranger.state is not None
    stranger.ids = iter([1])
    assert stranger.erase().reason is Reason.REDELIVERED
    stranger.wait(7 * 24 * 60)
    assert stranger.state is None


@pytest.mark.parametrize("comes_back_by", ["put", "notify"])
def test_who_comes_back_is_not_on_the_way_out(comes_back_by: str) -> None:
    """After a new profile or a new request nothing is to be forgotten at the erasure's time any more."""
    player = ready()
    player.erase()
    getattr(player, comes_back_by)()
    assert player.state is not None
    assert player.state.forget_at is None


def test_the_readers_of_profiles_are_told_of_each_change() -> None:
    """A profile, a contact that died, and an erasure as a tombstone without contacts."""
    player = Player()
    player.put()
    player.notify()
    player.answer(player.deliveries[0], O.REJECTED, reason="http_410")
    player.erase()
    told = [(p.profile is not None, list(p.dead_contacts)) for p in published(player)]
    assert told == [(True, []), (True, ["push"]), (False, [])]
    assert player.state is not None
    assert player.state.dead_contacts == {}


def test_an_ended_notification_keeps_only_what_answers_late_facts() -> None:
    """Ladder and data leave the state; a suppressed step waits for nothing."""
    player = ready()
    player.notify(data={"name": "Ada"})
    player.resolve()
    player.answer(player.deliveries[0], O.UNCLAIMED)
    kept = player.notification()
    assert (kept.ladder, kept.data) == (None, {})
    assert [(s.state, s.claim_deadline, s.waiting) for s in kept.steps] == [(StepState.SUPPRESSED, None, False)] * 3


def test_a_step_that_is_due_already_is_not_promoted() -> None:
    """The next step is held back by strict ordering and not by its time."""
    player = ready()
    player.notify("k1", ladder(("chat", 0)))
    player.notify("k2", ladder(("push", 0), ("chat", 0), ordering="strict"))
    player.answer(player.deliveries[-1], O.REJECTED)
    assert player.events(E.STEP_PROMOTED) == []
    assert [d.channel for d in player.deliveries] == ["chat", "push"]


def test_a_ladder_whose_last_channel_is_switched_off_is_nobodys_failure() -> None:
    """It ends as finished, and no dead letter is made."""
    player = ready(preferences={"payment": {"push": False}})
    player.notify(using=ladder(("push", 0)))
    assert player.notification().ended is End.FINISHED
    assert player.set_aside == []


def test_a_held_step_counts_as_one_that_may_have_left() -> None:
    """It ends the ladder as finished: a dead letter would invite a second message."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    player.answer(player.deliveries[0], O.UNKNOWN)
    assert player.notification().steps[0].state is StepState.HELD
    assert [e.depth for e in player.events(E.FINISHED)] == [1]
    assert player.set_aside == []


def test_unknown_answers_are_bounded_too() -> None:
    """Each may have been a message: after the last attempt it is held, by the name of the bound."""
    player = ready()
    player.notify(using=ladder(("push", 0), retry=RetryPolicy(max_attempts=2, jitter=0)))
    for _ in range(2):
        reason = player.answer(player.deliveries[-1], O.UNKNOWN, unknown_policy=UnknownPolicy.RESEND).reason
        player.wait(0.2)
    assert reason is Reason.ATTEMPTS_EXHAUSTED
    assert len(player.deliveries) == 2
    assert player.notification().steps[0].state is StepState.HELD


def test_a_resolution_names_the_last_step_that_had_left() -> None:
    """Of two, the second; and a late one names its key."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("chat", 10), ("email", 20)))
    player.answer(player.deliveries[-1], O.SENT)
    player.wait(10)
    player.answer(player.deliveries[-1], O.SENT)
    player.resolve()
    assert [e.step_no for e in player.events(E.RESOLVED)] == [1]
    player.notify("k2", ladder(("push", 0)))
    player.answer(player.deliveries[-1], O.SENT)
    player.resolve("k2")
    assert [e.key for e in player.events(E.TOO_LATE)] == [key_of("k2", 0)]


def test_a_resolution_after_an_erasure_tells_nothing() -> None:
    """There is nobody left whom it could have been too late for."""
    player = ready()
    player.notify()
    player.erase()
    assert player.resolve().reason is Reason.ALREADY_RESOLVED
    assert player.events(E.TOO_LATE) == []


def test_the_dead_letter_of_an_undeliverable_one_is_the_whole_request() -> None:
    """Someone may tell the person by another way."""
    player = Player()
    player.notify(data={"amount": 3})
    letter = player.set_aside[0].notify
    assert letter is not None
    assert (letter.data, letter.dedup_key, letter.kind) == ({"amount": 3}, "k1", "payment")


@pytest.mark.parametrize("step_no", [-1, 1])
def test_an_outcome_of_no_step_of_ours_is_stale(step_no: int) -> None:
    """A step before the first or after the last, or another notification's id under this key."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    claim = player.deliveries[0]
    assert player.answer(replace(claim, step_no=step_no), O.SENT).reason is Reason.STALE_OUTCOME
    foreign = replace(claim, notification_id=claim.notification_id.__class__(int=1))
    assert player.answer(foreign, O.SENT).reason is Reason.STALE_OUTCOME
    assert player.notification().steps[0].state is StepState.CLAIMED


@pytest.mark.parametrize("kind", [O.FAILED, O.UNKNOWN, O.UNCLAIMED, O.SUPPRESSED])
def test_a_report_that_comes_twice_counts_once(kind: O) -> None:
    """Outcomes are written at least once: the second one finds its claim concluded."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("chat", 10)))
    claim = player.deliveries[0]
    player.answer(claim, kind, reason="code", unknown_policy=UnknownPolicy.RESEND)
    told = player.event_types()
    assert player.answer(claim, kind, reason="code", unknown_policy=UnknownPolicy.RESEND).reason is Reason.STALE_OUTCOME
    assert player.event_types() == told


def test_a_receipt_alone_stops_a_ladder_that_stops_on_sent() -> None:
    """What was delivered was sent."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("email", 10), stop_on="sent"))
    player.answer(replace(player.deliveries[0], claim=0), O.DELIVERED)
    assert player.notification().ended is End.FINISHED
