"""What events add up to, held against the state of the domain that emitted them."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import invariant

from processor.domain.model import Emit
from relay.journal.status import Happened, Status, fold
from relay.journal.totals import count
from schemas.records import EventType, OutcomeKind
from schemas.state import End, StepState
from tests.support.journal import event
from tests.support.recipient import MINUTE, NOON, Player
from tests.unit.domain.test_machine import OneRecipient


def folded(player: Player, key: str = "k1") -> Status:
    """The standing of one of the player's notifications, from its events alone."""
    status = fold(
        [
            Happened(type=c.type, event=c.event)
            for c in player.commands
            if isinstance(c, Emit) and c.event.dedup_key == key
        ]
    )
    assert status is not None
    return status


class Folded(OneRecipient):
    """Any history: the journal's view of each notification is the domain's."""

    @invariant()
    def the_journal_sees_what_the_domain_knows(self) -> None:
        """Ends, steps' states and due times are equal."""
        state = self.player.state
        for key, notification in (state.notifications if state else {}).items():
            seen = folded(self.player, key)
            ended = End.RESOLVED if seen.resolved_late_at is not None else seen.status
            assert ended == (notification.ended or "open")
            assert [s.state for s in seen.steps] == [s.state for s in notification.steps]
            pending = [(s.step_no, s.due_at) for s in notification.steps if s.state is StepState.PENDING]
            assert [(s.step_no, s.due_at) for s in seen.steps if s.state is StepState.PENDING] == pending
            assert (seen.accepted_at, seen.expires_at) == (notification.accepted_at, notification.expires_at)


TestFolded = Folded.TestCase
TestFolded.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
del OneRecipient


def test_a_second_ladder_under_the_same_id_starts_afresh() -> None:
    """After its retention a dedup key may be used again; the standing is that of the new ladder."""
    player = Player()
    player.put()
    player.notify()
    player.resolve()
    player.wait(8 * 24 * 60)
    player.notify()
    status = folded(player)
    assert status.status == "open"
    assert status.resolution is None
    assert status.next_due_at == player.now + 10 * MINUTE, "step 0 is claimed; step 1 is next"


def test_an_unknown_kind_is_dead_until_a_corrected_request() -> None:
    """A refused request shows as dead, and leaves no mark on one that is accepted later."""
    player = Player()
    player.put()
    player.notify(using=None)
    assert folded(player).status == "dead"
    assert folded(player).accepted_at is None
    player.notify()
    assert folded(player).status == "open"


def test_late_resolution_is_told_beside_the_end() -> None:
    """A ladder that expired stays expired; that the person acted later stands beside it."""
    player = Player()
    player.put()
    player.notify(expires_at=NOON + MINUTE)
    player.wait(2)
    player.resolve()
    status = folded(player)
    assert (status.status, status.resolution, status.resolved_late_at) == ("expired", "paid", NOON + 2 * MINUTE)


def test_a_story_without_its_beginning() -> None:
    """Events whose acceptance is past the retention still tell what they can."""
    sent = event(reason="sent", step_no=2, channel="email", attempt=1)
    status = fold([Happened(type=EventType.STEP_SENT, event=sent)])
    assert status is not None
    assert status.accepted_at is None
    assert [(s.step_no, s.state) for s in status.steps] == [(2, "sent")]


def test_totals_add_up_by_kind() -> None:
    """Each group of equal events is counted under its kind with its number."""
    rows = [
        ("a", "rung.notification.accepted", "accepted", None, None, 0, 5),
        ("a", "rung.step.sent", "sent", "push", None, None, 4),
        ("a", "rung.step.sent", "sent", "email", None, None, 1),
        ("a", "rung.step.failed", "retry", "push", None, 0, 2),
        ("a", "rung.step.failed", "attempts_exhausted", "push", None, None, 1),
        ("a", "rung.step.suppressed", "resolved", "email", None, None, 3),
        ("a", "rung.notification.resolved", "resolved", None, 1, None, 2),
        ("a", "rung.notification.too_late", "already_ended", None, 3, None, 1),
        ("a", "rung.notification.too_late", "in_flight", None, 3, None, 1),
        ("b", "rung.notification.dead", "unknown_kind", None, None, None, 1),
        ("b", "rung.of_a_newer_release", "x", None, None, None, 1),
    ]
    a, b = count(rows)
    assert (a.accepted, a.sent, a.retried, a.resolved_late, a.in_flight) == (5, {"push": 4, "email": 1}, 2, 1, 1)
    assert a.steps == {"sent": 5, "failed": 1, "suppressed": 3}
    assert (a.concluded, a.cancelled) == (9, 3)
    assert a.depth == {1: 2, 3: 1}
    assert a.ended == {"resolved": 2}
    assert (b.kind, b.ended) == ("b", {})


def test_a_step_that_rests_after_it_was_unclaimed_twice_is_pending() -> None:
    """The first time it is claimed again at once; the second time it rests, and its standing says until when."""
    player = Player()
    player.put()
    player.notify()
    for _ in range(2):
        player.answer(player.deliveries[-1], OutcomeKind.UNCLAIMED)
    status = folded(player)
    assert status.steps[0].state is StepState.PENDING
    assert status.next_due_at == status.steps[0].due_at == player.now + 5_000
