"""What readers of the events are told, field by field, and facts that come once a ladder is over."""

from __future__ import annotations

from processor.domain.derive import fingerprint
from schemas.profile import Profile, QuietHours
from schemas.reasons import Reason
from schemas.records import EventType, Notify, OutcomeKind
from schemas.state import RetryPolicy, StepState
from tests.support.recipient import MINUTE, NOON, REACHABLE, THREE, Player, identity, ladder

HOUR = 60 * MINUTE
DAY = 24 * HOUR


def test_an_acceptance_tells_its_end_and_its_next_moment() -> None:
    """Both are moments from now on, and the first notification of a recipient has the order 0."""
    player = Player()
    player.put(REACHABLE)
    player.notify(using=ladder(("push", 5), ("chat", 10)))
    (accepted,) = player.events(EventType.ACCEPTED)
    assert accepted.reason is Reason.ACCEPTED
    assert (accepted.next_due_at, accepted.expires_at) == (NOON + 5 * MINUTE, NOON + DAY)
    assert player.notification().order == 0


def test_a_deferred_step_tells_from_when_to_when() -> None:
    """Quiet hours from 11:00 to 13:00 move a step of noon by an hour, and the event has both moments."""
    player = Player()
    player.put(Profile(addresses=REACHABLE.addresses, quiet_hours=QuietHours(from_="11:00", until="13:00")))
    player.notify(using=ladder(("push", 0)))
    (deferred,) = player.events(EventType.STEP_DEFERRED)
    assert (deferred.due_at, deferred.next_due_at) == (NOON, NOON + HOUR)


def test_the_last_failure_tells_that_attempts_are_exhausted() -> None:
    """The event, not the decision alone, has the reason."""
    player = Player()
    player.put(REACHABLE)
    player.notify(using=ladder(("push", 0), retry=RetryPolicy(max_attempts=1)))
    player.answer(player.deliveries[0], OutcomeKind.FAILED)
    assert [e.reason for e in player.events(EventType.STEP_FAILED)] == [Reason.ATTEMPTS_EXHAUSTED]


def test_a_first_unclaimed_step_is_due_at_that_moment() -> None:
    """Neither later nor earlier: the new claim's due time is the moment at which it was handed back."""
    player = Player()
    player.put(REACHABLE)
    player.notify()
    player.now += 1_000
    player.answer(player.deliveries[0], OutcomeKind.UNCLAIMED)
    assert [d.due_at for d in player.deliveries] == [NOON, NOON + 1_000]


def test_a_receipt_after_a_bounce_clears_the_bounce() -> None:
    """The message arrived after all, and nothing of the refusal stays on its step."""
    player = Player()
    player.put(REACHABLE)
    player.notify(using=THREE)
    claim = player.deliveries[0]
    for kind in (OutcomeKind.SENT, OutcomeKind.BOUNCED, OutcomeKind.DELIVERED):
        player.answer(claim, kind)
    step = player.notification().steps[0]
    assert (step.state, step.reason) == (StepState.SENT, None)


def test_a_dead_ladder_whose_every_step_has_left_after_all_is_not_opened_again() -> None:
    """A receipt that comes after the end shows that nothing is left to send: a redrive finds no work."""
    player = Player()
    player.put(REACHABLE)
    one = ladder(("push", 0), retry=RetryPolicy(max_attempts=1))
    player.notify(using=one)
    player.answer(player.deliveries[0], OutcomeKind.FAILED)
    player.answer(player.deliveries[0], OutcomeKind.DELIVERED)
    letter = player.set_aside[0].notify
    assert isinstance(letter, Notify)
    assert letter.notification_id == identity("k1")
    assert player.redrive(letter, using=one).reason is Reason.LADDER_ENDED
    assert len(player.deliveries) == 1


def test_a_fingerprint_never_changes() -> None:
    """Stored states hold them: another length or hash would forget what was seen and which contacts are dead."""
    assert fingerprint("token-1") == "02cc1a25b75ee031"
