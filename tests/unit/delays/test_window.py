"""The window: what is held leaves by its moment, and what is committed is exactly what left."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from relay.delays.progress import decode_done, encode_done
from relay.delays.window import Window

SPAN = 24


@dataclass(frozen=True)
class Waits:
    """A record as far as the window cares."""

    offset: int
    release_at: int
    size: int = 1


def window(low: int = 0, done: set[int] | None = None, **bounds: int) -> Window[Waits]:
    """A window with small bounds."""
    return Window(low, done or set(), **({"capacity": 8, "capacity_bytes": 1_000, "span": SPAN} | bounds))


def fill(target: Window[Waits], *records: Waits) -> None:
    """Read records into a window."""
    for record in records:
        if target.expects(record.offset):
            target.hold(record)


def test_records_leave_by_their_moment() -> None:
    """An earlier moment behind a later one does not wait for it; nothing leaves before its moment."""
    held = window()
    fill(held, Waits(0, 900), Waits(1, 100), Waits(2, 500))
    assert held.first_release == 100
    assert held.due(99, 10) == []
    assert [r.offset for r in held.due(500, 10)] == [1, 2]


def test_equal_moments_leave_in_the_order_of_the_topic() -> None:
    """Among equals the offset decides."""
    held = window()
    fill(held, Waits(3, 5), Waits(4, 5), Waits(7, 5))
    assert [r.offset for r in held.due(5, 2)] == [3, 4]
    assert [r.offset for r in held.due(5, 2)] == [7]


def test_the_position_is_the_lowest_that_is_held() -> None:
    """Forwarded above the lowest one is recorded; gaps (transaction markers) need no record."""
    held = window()
    fill(held, Waits(0, 900), Waits(1, 100), Waits(5, 200), Waits(6, 950))
    taken = held.due(200, 10)
    position = held.position(taken)
    assert (position.low, position.done) == (0, {1, 5})
    held.settle(taken)
    first = held.due(900, 10)
    assert held.position(first).low == 6
    held.settle(first)
    assert (held.low, held.done) == (6, set())
    held.settle(held.due(950, 10))
    assert held.low == 7


def test_what_was_not_forwarded_is_put_back() -> None:
    """After an abort the same records leave again, and the position has not moved."""
    held = window()
    fill(held, Waits(0, 1), Waits(1, 2))
    taken = held.due(2, 10)
    held.put_back(taken)
    assert held.held == 2
    assert held.low == 0
    assert held.due(2, 10) == taken


def test_a_restart_skips_what_was_forwarded() -> None:
    """Records recorded as done are not held again, and stay recorded until the position has passed them."""
    held = window(low=10, done={12, 14})
    fill(held, Waits(10, 900), Waits(11, 100), Waits(12, 100))
    taken = held.due(100, 10)
    assert [r.offset for r in taken] == [11]
    assert held.position(taken).done == {11, 12, 14}
    held.settle(taken)
    held.settle(held.due(900, 10))
    assert (held.low, held.done) == (13, {14})


def test_a_full_window_stops_reading_until_half_has_left() -> None:
    """The bound is on records; hysteresis keeps a partition from being paused and resumed for each record."""
    held = window(capacity=4)
    fill(held, *(Waits(i, i) for i in range(4)))
    assert not held.wants_more()
    held.settle(held.due(0, 1))
    assert not held.wants_more()
    held.settle(held.due(2, 10))
    assert held.wants_more()


def test_bytes_are_bounded_too() -> None:
    """Large records fill a window early; one record is always taken."""
    held = window(capacity_bytes=10)
    fill(held, Waits(0, 5, size=50))
    assert not held.wants_more()
    held.settle(held.due(5, 1))
    assert held.wants_more()


def test_reading_ahead_ends_at_the_span() -> None:
    """A record that holds the position back stops the reading when the bitmap would not reach further."""
    held = window(capacity=1_000)
    fill(held, Waits(0, 10_000))
    for offset in range(1, SPAN):
        assert held.wants_more()
        fill(held, Waits(offset, 1))
        held.settle(held.due(1, 10))
    assert not held.wants_more()
    held.settle(held.due(10_000, 10))
    assert held.wants_more()


def test_a_record_beyond_the_span_waits_for_the_position() -> None:
    """A gap of aborted records may put a record beyond the span: it leaves when the position has moved."""
    held = window()
    fill(held, Waits(0, 500), Waits(SPAN + 3, 1))
    assert held.due(400, 10) == []
    assert held.held == 2
    held.settle(held.due(500, 10))
    assert [r.offset for r in held.due(500, 10)] == [SPAN + 3]


def test_a_clock_set_back_does_not_lengthen_waits() -> None:
    """What would wait longer than a record appended now waits as long as that one."""
    held = window()
    fill(held, Waits(0, 5_000), Waits(1, 300))
    held.clock_set_back(1_000)
    assert held.due(1_000, 10) == [Waits(1, 300), Waits(0, 5_000)]


@given(st.integers(1, 50))
def test_a_batch_is_bounded(limit: int) -> None:
    """No more leave at once than were asked for."""
    held = window(capacity=100, span=100)
    fill(held, *(Waits(i, 0) for i in range(60)))
    assert len(held.due(0, limit)) == min(limit, 60)


class Crashes(RuleBasedStateMachine):
    """A partition that is appended to, forwarded from, and read by one window after another, each ended by a crash."""

    def __init__(self) -> None:
        super().__init__()
        self.topic: list[Waits] = []
        self.end = 0
        self.now = 0
        self.forwarded: list[int] = []
        self.committed: tuple[int, str] = (0, "")
        self.restart()

    def restart(self) -> None:
        """Begin with what was committed, as after an assignment."""
        low, metadata = self.committed
        self.window = window(low, decode_done(low, metadata))
        self.next_read = low

    @rule(gap=st.integers(0, 40), wait=st.integers(0, 30))
    def append(self, gap: int, wait: int) -> None:
        """A record, after a gap as markers and aborted records leave."""
        self.topic.append(Waits(self.end + gap, self.now + wait))
        self.end += gap + 1

    @rule(count=st.integers(1, 6))
    def read(self, count: int) -> None:
        """What the client hands over, unless the partition is paused."""
        for record in [r for r in self.topic if r.offset >= self.next_read][:count]:
            if not self.window.wants_more():
                return
            fill(self.window, record)
            self.next_read = record.offset + 1

    @rule(passed=st.integers(0, 20))
    def wait(self, passed: int) -> None:
        """Time goes on."""
        self.now += passed

    @rule(limit=st.integers(1, 10), fate=st.sampled_from(["committed", "aborted", "crashed before", "crashed after"]))
    def forward(self, limit: int, fate: str) -> None:
        """A transaction, and what becomes of it."""
        taken = self.window.due(self.now, limit)
        assert all(record.release_at <= self.now for record in taken)
        position = self.window.position(taken)
        if fate in ("committed", "crashed after"):
            self.forwarded += [record.offset for record in taken]
            self.committed = (position.low, encode_done(position.low, position.done))
        if fate == "committed":
            self.window.settle(taken)
        elif fate == "aborted":
            self.window.put_back(taken)
        else:
            self.restart()

    @rule()
    def crash(self) -> None:
        """The process is gone between two transactions."""
        self.restart()

    @invariant()
    def nothing_is_repeated(self) -> None:
        """Each record is forwarded at most once."""
        assert len(self.forwarded) == len(set(self.forwarded))

    @invariant()
    def what_is_committed_is_what_was_forwarded(self) -> None:
        """Below the committed offset all is forwarded, and above it exactly what the metadata says."""
        low, metadata = self.committed
        recorded = {r.offset for r in self.topic if r.offset < low} | decode_done(low, metadata)
        assert recorded == set(self.forwarded)

    def teardown(self) -> None:
        """In the end everything leaves: nothing is lost and nothing is stuck."""
        for _ in range(2 * len(self.topic) + 2):
            self.read(1_000)
            self.wait(1_000)
            self.forward(1_000, "committed")
        assert sorted(self.forwarded) == [r.offset for r in self.topic]


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("low", [0, 1_000])
def test_a_new_window_commits_where_it_began(low: int) -> None:
    """Before anything is read the position is the committed one."""
    assert window(low).position([]).low == low
