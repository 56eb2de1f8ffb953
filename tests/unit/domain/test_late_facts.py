"""What comes late, twice, or out of order, and still has one meaning."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from schemas.profile import Profile
from schemas.reasons import Reason
from schemas.records import EventType as E
from schemas.records import OutcomeKind as O
from schemas.records import UnknownPolicy
from schemas.state import End, StepState
from schemas.topics import CLAIM_DEADLINE_MS, CLAIM_GRACE_MS
from tests.support.recipient import MINUTE, NOON, REACHABLE, Player, key_of, ladder

LOST_AFTER = CLAIM_DEADLINE_MS + CLAIM_GRACE_MS


def ready(**profile: object) -> Player:
    """A recipient with addresses on every channel."""
    player = Player()
    player.put(Profile(addresses=REACHABLE.addresses, **profile))  # type: ignore[arg-type]
    player.commands.clear()
    return player


def receipt(player: Player, kind: O, claim: int = 0) -> Reason:
    """A receipt (it knows no claim) about the last delivery."""
    return player.answer(replace(player.deliveries[-1], claim=claim), kind).reason


def test_a_bounce_before_the_workers_report_is_one_message_that_came_back() -> None:
    """The receipt is faster than the outcome: sent and bounced once each, and the late `sent` revives nothing."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("email", 10), stop_on="sent"))
    push = player.deliveries[0]
    receipt(player, O.BOUNCED)
    assert player.answer(push, O.SENT).reason is Reason.STALE_OUTCOME
    assert player.event_types().count("step.sent") == 1
    assert player.event_types().count("step.bounced") == 1
    assert player.notification().steps[0].state is StepState.REJECTED
    assert player.notification().ended is None
    assert [d.channel for d in player.deliveries] == ["push", "email"]


def test_a_receipt_before_the_workers_report_counts_as_sent() -> None:
    """One `sent`, with the key of the step, whichever of the two came first."""
    player = ready()
    player.notify()
    push = player.deliveries[0]
    assert receipt(player, O.DELIVERED) is Reason.DELIVERED
    assert player.answer(push, O.SENT).reason is Reason.STALE_OUTCOME
    assert [e.key for e in player.events(E.STEP_SENT)] == [key_of("k1", 0)]
    assert player.notification().steps[0] == replace(
        player.notification().steps[0], state=StepState.SENT, claim_deadline=None, reason=None, waiting=False
    )


@pytest.mark.parametrize("kind", [O.DELIVERED, O.BOUNCED])
def test_a_receipt_after_the_stop_tells_that_the_message_had_left(kind: O) -> None:
    """The race of a call in flight is counted, also where the receipt is all that ever tells of it."""
    player = ready()
    player.notify()
    player.resolve()
    receipt(player, kind)
    assert [(e.step_no, e.reason) for e in player.events(E.TOO_LATE)] == [(0, Reason.IN_FLIGHT)]
    player.wait(3 * 60)
    assert len(player.deliveries) == 1
    assert player.notification().ended is End.RESOLVED


def test_a_message_that_came_back_and_arrived_after_all_is_delivered() -> None:
    """A provider may correct itself; it had left once."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("email", 10), stop_on="delivered"))
    player.answer(player.deliveries[0], O.SENT)
    push = player.deliveries[0]
    receipt(player, O.BOUNCED)
    player.answer(replace(push, claim=0), O.DELIVERED)
    assert player.notification().ended is End.FINISHED
    assert player.notification().steps[0].state is StepState.SENT
    assert len(player.events(E.STEP_SENT)) == 1


def test_a_bounce_twice_is_one_bounce() -> None:
    """Receipts are repeated; the next step is promoted once."""
    player = ready()
    player.notify()
    push = player.deliveries[0]
    player.answer(push, O.SENT)
    assert receipt(player, O.BOUNCED) is Reason.BOUNCED
    assert player.answer(replace(push, claim=0), O.BOUNCED).reason is Reason.STALE_OUTCOME
    assert len(player.events(E.STEP_BOUNCED)) == 1
    assert len(player.events(E.STEP_PROMOTED)) == 1


def test_a_bounce_after_the_end_ends_nothing_again() -> None:
    """The ladder is finished; the contact dies for the next one, and no step goes."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    player.answer(player.deliveries[0], O.SENT)
    receipt(player, O.BOUNCED)
    assert player.notification().ended is End.FINISHED
    assert len(player.deliveries) == 1
    player.notify("k2")
    assert player.deliveries[-1].channel == "chat"


def test_a_delivery_after_the_end_is_only_recorded() -> None:
    """The stop is not told twice."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("email", 10), stop_on="sent"))
    player.answer(player.deliveries[0], O.SENT)
    receipt(player, O.DELIVERED)
    assert len(player.events(E.FINISHED)) == 1
    assert len(player.events(E.STEP_DELIVERED)) == 1


def test_a_delivery_concludes_a_ladder_that_waits_for_its_last_step() -> None:
    """The worker's report never came; the receipt ends the ladder all the same."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    receipt(player, O.DELIVERED)
    assert player.notification().ended is End.FINISHED
    assert [e.depth for e in player.events(E.FINISHED)] == [1]


def test_a_refusal_of_an_older_claim_says_nothing_about_the_new_address() -> None:
    """The first claim was lost and the address changed: its late refusal ends nothing and kills nothing."""
    player = ready()
    player.notify()
    player.put(Profile(addresses={**REACHABLE.addresses, "push": "token-2"}))
    player.advance(NOON + LOST_AFTER)
    old, new = player.deliveries
    assert (old.address, new.address) == ("token-1", "token-2")
    assert player.answer(old, O.REJECTED).reason is Reason.STALE_OUTCOME
    assert player.state is not None
    assert player.state.dead_contacts == {}
    assert player.answer(new, O.SENT).reason is Reason.SENT


def test_a_refusal_that_comes_after_the_claim_was_given_up_kills_the_contact() -> None:
    """Resolved, the claim lost, the step suppressed; then the worker is back: a dead address is a fact for the next."""
    player = ready()
    player.notify()
    player.resolve()
    player.wait(2)
    assert player.notification().steps[0].state is StepState.SUPPRESSED
    assert player.answer(player.deliveries[0], O.REJECTED, reason="http_410").reason is Reason.REJECTED
    assert player.answer(player.deliveries[0], O.REJECTED, reason="http_410").reason is Reason.STALE_OUTCOME
    player.notify("k2")
    assert player.deliveries[-1].channel == "chat"
    assert len(player.events(E.STEP_REJECTED)) == 1


def test_a_step_that_was_never_claimed_cannot_be_refused() -> None:
    """An outcome without a claim about a step that waits, or that the end suppressed, changes nothing."""
    player = ready()
    player.notify()
    stray = replace(player.deliveries[0], step_no=1, claim=0)
    assert player.answer(stray, O.REJECTED).reason is Reason.STALE_OUTCOME
    player.resolve()
    assert player.answer(stray, O.REJECTED).reason is Reason.STALE_OUTCOME


def test_a_refusal_after_the_erasure_is_about_nobody() -> None:
    """No contact is left that could die, and nothing of the address stays in what is kept."""
    player = ready()
    player.notify()
    player.erase()
    assert player.notification().steps[0].address_hash is None
    assert player.answer(player.deliveries[0], O.REJECTED).reason is Reason.REJECTED
    assert player.state is not None
    assert player.state.dead_contacts == {}


def test_a_refusal_after_an_erasure_does_not_kill_the_address_of_a_new_beginning() -> None:
    """The person came back with a profile of their own; what was claimed before is forgotten."""
    player = ready()
    player.notify()
    player.erase()
    player.put()
    player.answer(player.deliveries[0], O.REJECTED)
    assert player.state is not None
    assert player.state.dead_contacts == {}


def test_a_late_success_after_the_claim_was_given_up_adds_no_second_suppression() -> None:
    """Suppressed when the claim was lost, sent when the worker came back: each once, and named as in flight."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    player.resolve()
    player.wait(2)
    assert player.answer(player.deliveries[0], O.SENT).reason is Reason.IN_FLIGHT
    assert player.answer(player.deliveries[0], O.SENT).reason is Reason.STALE_OUTCOME
    player.wait(60)
    assert [t for t in player.event_types() if t.startswith("step.")] == [
        "step.claimed",
        "step.suppressed",
        "step.sent",
    ]
    assert len(player.events(E.TOO_LATE)) == 1


def test_a_success_after_everything_had_failed_is_not_too_late_for_anything() -> None:
    """Dead stays dead (its dead letter is out), nobody had acted, and the message is on record."""
    player = ready()
    player.notify(using=ladder(("push", 0), expires_after_ms=10 * MINUTE))
    player.advance(NOON + LOST_AFTER)
    old, new = player.deliveries
    player.answer(new, O.REJECTED)
    assert player.notification().ended is End.DEAD
    assert player.answer(old, O.SENT).reason is Reason.IN_FLIGHT
    assert player.events(E.TOO_LATE) == []
    assert player.notification().ended is End.DEAD
    assert len(player.events(E.STEP_SENT)) == 1


@pytest.mark.parametrize(
    ("kind", "types", "state"),
    [
        (O.FAILED, ["step.failed", "step.suppressed"], StepState.SUPPRESSED),
        (O.UNKNOWN, ["step.unknown"], StepState.HELD),
        (O.UNCLAIMED, ["step.suppressed"], StepState.SUPPRESSED),
        (O.SUPPRESSED, ["step.suppressed"], StepState.SUPPRESSED),
        (O.REJECTED, ["step.rejected"], StepState.REJECTED),
    ],
)
def test_after_the_stop_a_claim_is_concluded_once(kind: O, types: list[str], state: StepState) -> None:
    """Whatever the worker reports about a claim of a resolved ladder: no retry, one conclusion, by the stop's name."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("email", 10)))
    player.resolve()
    before = len(player.event_types())
    player.answer(player.deliveries[0], kind, reason="code", unknown_policy=UnknownPolicy.RESEND)
    player.wait(3 * 60)
    assert player.event_types()[before:] == types
    assert player.notification().steps[0].state is state
    assert len(player.deliveries) == 1
    if state is StepState.SUPPRESSED:
        assert player.events(E.STEP_SUPPRESSED)[-1].reason == Reason.RESOLVED
    assert player.notification().ended is End.RESOLVED


@pytest.mark.parametrize(
    ("stop", "why"),
    [("expire", Reason.EXPIRED), ("erase", Reason.ERASED), ("finish", Reason.LADDER_ENDED)],
)
def test_a_failure_after_the_end_is_named_by_that_end(stop: str, why: Reason) -> None:
    """Two steps are in flight when the notification ends; the one that fails then is suppressed by the end's name."""
    player = ready()
    player.notify(using=ladder(("push", 0), ("email", 0), stop_on="sent", expires_after_ms=20_000))
    push, email = player.deliveries
    if stop == "expire":
        player.advance(NOON + 20_000)
    elif stop == "erase":
        player.erase()
    else:
        player.answer(email, O.SENT)
    assert player.answer(push, O.FAILED, reason="http_503").reason is why
    assert [(e.step_no, e.reason, e.detail) for e in player.events(E.STEP_SUPPRESSED)] == [(0, why, "http_503")]


def test_what_was_given_up_unclaimed_says_so() -> None:
    """The event tells that no call was made."""
    player = ready()
    player.notify(using=ladder(("push", 0)))
    player.resolve()
    player.answer(player.deliveries[0], O.UNCLAIMED)
    assert [(e.reason, e.detail) for e in player.events(E.STEP_SUPPRESSED)] == [(Reason.RESOLVED, "unclaimed")]
