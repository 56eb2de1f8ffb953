"""What the worker remembers: the guard, the answers and the offsets."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from processor.delivery import outcomes
from processor.delivery.answers import Answers
from processor.delivery.guard import CLOCK_SLACK_MS, Guard
from processor.delivery.partition import Partition
from processor.delivery.source import Assignment
from processor.delivery.tracker import OffsetTracker
from schemas.profile import Profile
from schemas.records import OutcomeKind
from tests.support.delivery import delivery

NO = Profile(consent={"news": False})


def test_a_resolution_stops_its_own_dedup_key_alone() -> None:
    """Not another key of the person, not another person's, not in another partition."""
    guard, claim = Guard(60_000), delivery("ada", dedup_key="k1")
    guard.resolved(0, "ada", "k1", 0)
    assert guard.verdict(0, claim) == "resolved"
    assert guard.verdict(1, claim) is None
    assert guard.verdict(0, replace(claim, dedup_key="k2")) is None
    assert guard.verdict(0, replace(claim, recipient="bob")) is None


def test_the_last_profile_decides() -> None:
    """Withdrawn, given again, withdrawn for another kind; erased, and back."""
    guard, claim = Guard(60_000), delivery("ada", claimed_at=1_000)
    guard.changed(0, "ada", NO, 1_000, 0)
    assert guard.verdict(0, claim) == "consent_withdrawn"
    guard.changed(0, "ada", Profile(consent={"news": True, "adverts": False}), 1_001, 1)
    assert guard.verdict(0, claim) is None
    guard.changed(0, "ada", None, 1_002, 2)
    assert guard.verdict(0, claim) == "erased"
    guard.changed(0, "ada", Profile(), 1_003, 3)
    assert guard.verdict(0, claim) is None
    assert len(guard) == 0


def test_a_claim_that_was_made_after_a_change_knows_of_it() -> None:
    """Erased, told again, claimed: the claim may be read before the newer profile is."""
    guard = Guard(60_000)
    guard.changed(0, "ada", None, 1_000, 0)
    assert guard.verdict(0, delivery("ada", claimed_at=1_000 + CLOCK_SLACK_MS)) == "erased"
    assert guard.verdict(0, delivery("ada", claimed_at=1_001 + CLOCK_SLACK_MS)) is None


def test_old_facts_are_forgotten_and_repeated_ones_stay() -> None:
    """By the time at which they were seen last; a partition that goes takes all along."""
    guard = Guard(100)
    guard.resolved(0, "ada", "k1", 0)
    guard.resolved(0, "ada", "k2", 50)
    guard.resolved(0, "ada", "k1", 90)
    guard.changed(0, "ada", NO, 0, 0)
    guard.changed(1, "bob", NO, 0, 120)
    guard.prune(160)
    assert guard.verdict(0, delivery("ada", dedup_key="k1", claimed_at=0)) == "resolved"
    assert guard.verdict(0, delivery("ada", dedup_key="k2", claimed_at=0)) is None
    assert len(guard) == 2
    guard.drop(1)
    assert len(guard) == 1


def test_answers_know_claims_and_steps() -> None:
    """A claim that was answered, a step that was sent, and receipts that say nothing about claims."""
    answers, claim = Answers(100), delivery()
    second, other = replace(claim, claim=2), replace(claim, key="other", claim=0)
    answers.record(0, outcomes.plain(claim, OutcomeKind.UNCLAIMED, "deadline", 0), 0)
    assert answers.answered(0, claim)
    assert not answers.answered(0, second)
    assert answers.sent(0, claim) is None
    sent = outcomes.plain(second, OutcomeKind.SENT, "", 1)
    answers.record(0, sent, 50)
    assert answers.sent(0, claim) == sent
    answers.record(0, replace(sent, claim=0, key="other", outcome=OutcomeKind.DELIVERED), 50)
    assert not answers.answered(0, other)
    answers.prune(140)
    assert answers.answered(0, second)
    answers.prune(151)
    assert len(answers) == 0


def test_an_answer_to_one_notification_is_none_to_another_with_its_id() -> None:
    """A service may give one id to two dedup keys or two people: both are called."""
    answers, claim = Answers(100), delivery()
    answers.record(0, outcomes.plain(claim, OutcomeKind.SENT, "", 0), 0)
    assert not answers.answered(0, replace(claim, dedup_key="another"))
    assert answers.sent(0, replace(claim, recipient="another")) is None


@given(st.permutations(range(8)), st.integers(0, 8))
def test_an_offset_is_committed_when_everything_before_it_is_settled(order: list[int], count: int) -> None:
    """In any order of settling; gaps in the offsets are no hole."""
    tracker = OffsetTracker()
    offsets = [3 * n for n in range(8)]
    for offset in offsets:
        assert tracker.add(offset, 1_000 + offset)
    assert not tracker.add(3, 0)
    settled = {offsets[index] for index in order[:count]}
    for offset in settled:
        tracker.settle(offset)
        tracker.settle(offset)
    left = [offset for offset in offsets if offset not in settled]
    assert len(tracker) == len(left)
    assert tracker.committable == (left[0] if left else offsets[-1] + 1)
    assert tracker.oldest == (1_000 + left[0] if left else None)


def test_a_partition_is_ready_when_each_topic_was_read_back() -> None:
    """By a record at the barrier, or by the end of the topic, where its last offset holds no record."""
    partition = Partition(Assignment(0, {}, 0), 1, {"resolutions": 10, "recipients": 5})
    assert not partition.passed("resolutions", 9)
    assert not partition.passed("resolutions", 10)
    assert not partition.ready
    assert not partition.reached_end("outcomes")
    assert partition.reached_end("recipients")
    assert not partition.reached_end("recipients")
    assert partition.ready


def test_the_outcome_of_a_claim_that_is_issued_again_is_the_first_ones() -> None:
    """Under the new claim and attempt, with the provider's reference."""
    claim = delivery(notification_id=uuid.UUID(int=1))
    sent = replace(outcomes.plain(claim, OutcomeKind.SENT, "", 5), provider="push", provider_ref="m1")
    again = outcomes.again(replace(claim, claim=2, attempt=2), sent)
    assert (again.claim, again.attempt, again.provider_ref, again.key) == (2, 2, "m1", claim.key)
