"""Lanes, queues, slots and deadlines together, with a clock of the test's own."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from processor.delivery.lanes import Lanes
from processor.delivery.limits import ProviderLimits, TokenBucket
from processor.delivery.scheduler import Claim, ClaimState, Scheduler
from tests.support.delivery import delivery


def _scheduler(slots: int = 3, **providers: ProviderLimits) -> Scheduler:
    def route(claim: Claim, now: int) -> None:
        claim.provider = claim.delivery.channel
        claim.target = claim.delivery.address if claim.delivery.address.startswith("http") else ""

    return Scheduler(slots, providers or {"push": _limits()}, route)


def _limits(rate: float | None = None, concurrency: int = 100) -> ProviderLimits:
    return ProviderLimits(TokenBucket(rate, 1, 0), concurrency)


def _claim(
    recipient: str = "ada", channel: str = "push", deadline: int = 30_000, partition: int = 0, **f: str
) -> Claim:
    return Claim(delivery(recipient, channel=channel, claim_deadline=deadline, **f), partition, 0)


def _yes(_: Claim) -> bool:
    return True


def test_one_lane_goes_one_by_one_and_lanes_go_side_by_side() -> None:
    """The second claim of a recipient waits for the first; another recipient's does not."""
    scheduler = _scheduler()
    first, second, other = _claim("ada"), _claim("ada"), _claim("bob")
    for claim in (first, second, other):
        scheduler.add(claim, 0)
    assert scheduler.start(0, _yes) == [first, other]
    assert scheduler.start(0, _yes) == []
    scheduler.finish(first, 1)
    assert scheduler.start(1, _yes) == [second]


def test_slots_are_shared_in_turns_and_a_slow_provider_holds_none() -> None:
    """A provider that waits for its token takes no slot from another."""
    scheduler = _scheduler(2, push=_limits(rate=1), email=_limits())
    for n in range(4):
        scheduler.add(_claim(f"p{n}", "push"), 0)
        scheduler.add(_claim(f"e{n}", "email"), 0)
    started = scheduler.start(0, _yes)
    assert Counter(c.provider for c in started) == {"push": 1, "email": 1}
    for claim in started:
        scheduler.finish(claim, 1)
    assert Counter(c.provider for c in scheduler.start(1, _yes)) == {"email": 2}
    assert scheduler.wake_at(1) == 1_000


def test_what_waits_past_its_deadline_is_taken_out_wherever_it_stands() -> None:
    """The head of a lane, and one behind it."""
    scheduler = _scheduler(slots=1)
    calling, behind = _claim("ada", deadline=100), _claim("ada", deadline=100)
    head, after = _claim("bob", deadline=100), _claim("bob", deadline=900)
    for claim in (calling, behind, head, after):
        scheduler.add(claim, 0)
    assert scheduler.start(0, _yes) == [calling]
    assert scheduler.wake_at(0) == 101
    assert scheduler.expired(100) == []
    assert scheduler.expired(101) == [behind, head]
    scheduler.finish(calling, 102)
    assert scheduler.start(102, _yes) == [after]


def test_a_target_that_is_closed_lets_others_pass() -> None:
    """One recipient's server asked for a pause: the queue behind it goes on, and it comes back first."""
    limits = _limits()
    scheduler = _scheduler(9, push=limits)
    limits.close("http://a", 500)
    closed, open_ = _claim("ada", address="http://a"), _claim("bob", address="http://b")
    scheduler.add(closed, 0)
    scheduler.add(open_, 0)
    assert scheduler.start(0, _yes) == [open_]
    assert scheduler.wake_at(0) == 500
    assert scheduler.start(500, _yes) == [closed]


def test_a_claim_that_is_not_admitted_uses_no_slot_and_no_token() -> None:
    """The last-moment check comes before the token."""
    scheduler = _scheduler(1, push=_limits(rate=1))
    stopped, fine = _claim("ada"), _claim("bob")
    scheduler.add(stopped, 0)
    scheduler.add(fine, 0)
    assert scheduler.start(0, lambda claim: claim is not stopped) == [fine]
    assert stopped.state is ClaimState.DONE


def test_partitions_that_go_away_take_their_waiting_claims_along() -> None:
    """A call in flight holds its lane until it ends; a claim that is read again waits behind it."""
    scheduler = _scheduler()
    calling, waiting, kept = _claim("ada"), _claim("ada"), _claim("bob", partition=1)
    for claim in (calling, waiting):
        scheduler.add(claim, 0)
    scheduler.start(0, _yes)
    scheduler.add(kept, 0)
    assert scheduler.drop(lambda claim: claim.partition == 0, 1) == [waiting]
    again = _claim("ada")
    scheduler.add(again, 2)
    assert scheduler.start(2, _yes) == [kept]
    scheduler.finish(calling, 3)
    assert scheduler.start(3, _yes) == [again]


_ACTIONS = st.lists(
    st.tuples(st.sampled_from(["add", "finish", "wait", "drop"]), st.integers(0, 5), st.integers(0, 2)), max_size=120
)


@given(_ACTIONS, st.integers(1, 4), st.integers(1, 3))
def test_any_history_keeps_the_bounds_and_loses_nothing(
    actions: list[tuple[str, int, int]], slots: int, concurrency: int
) -> None:
    """In any order of claims, ends, time and revocations: slots and lanes are kept, each lane starts in its order, and
    in the end every claim was called, expired or dropped, once."""
    limits = {"push": _limits(concurrency=concurrency), "email": _limits(rate=50, concurrency=concurrency)}
    scheduler, now = _scheduler(slots, **limits), 0
    added: list[Claim] = []
    calling: list[Claim] = []
    gone: list[Claim] = []
    started: dict[tuple[str, str], list[int]] = defaultdict(list)

    def settle() -> None:
        gone.extend(scheduler.expired(now))
        for claim in scheduler.start(now, _yes):
            assert all(other.lane != claim.lane for other in calling)
            calling.append(claim)
            started[claim.lane].append(added.index(claim))
        assert len(calling) <= slots
        assert all(count <= concurrency for count in Counter(c.provider for c in calling).values())

    def finish(index: int) -> None:
        claim = calling.pop(index)
        scheduler.finish(claim, now)
        gone.append(claim)

    for action, number, other in actions:
        if action == "add":
            claim = _claim(
                f"r{number}", ("push", "email")[other % 2], deadline=now + 200 * (1 + other), partition=other
            )
            added.append(claim)
            scheduler.add(claim, now)
        elif action == "finish" and calling:
            finish(number % len(calling))
        elif action == "wait":
            now += 10 * number
        elif action == "drop":
            gone.extend(scheduler.drop(lambda c, p=other: c.partition == p, now))  # type: ignore[misc]
        settle()
    for _ in range(1_000):
        if not (calling or scheduler.waiting):
            break
        while calling:
            finish(0)
        settle()
        now = max(now + 1, min(scheduler.wake_at(now) or now, now + 50))
    assert sorted(map(id, gone)) == sorted(map(id, added))
    assert all(order == sorted(order) for order in started.values())


def test_a_lane_passes_over_what_is_not_wanted_and_leaves_nothing_behind() -> None:
    """An empty lane takes no memory."""
    lanes: Lanes[str] = Lanes()
    assert lanes.push("l", "a")
    assert not lanes.push("l", "b")
    assert not lanes.push("l", "c")
    assert lanes.finish("l", "b", lambda _: True) is None
    assert lanes.finish("l", "a", lambda item: item != "b") == "c"
    assert lanes.finish("l", "c", lambda _: True) is None
    assert len(lanes) == 0
