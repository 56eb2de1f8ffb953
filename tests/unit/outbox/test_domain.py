"""Positions of buckets, on histories of transactions that commit and roll back in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from relay.outbox.domain import BUCKETS, Entry, Group, Position, Progress, Snapshot, fair_share, next_wait

_BUCKETS = (0, 1, 2)


@dataclass(frozen=True)
class Written:
    """A row of the model's outbox."""

    seq: int
    xid: int
    bucket: int
    after: frozenset[int]
    """Rows of the bucket that were committed, or written in the same transaction, before this one was written."""


@dataclass
class Database:
    """PostgreSQL's visibility, as far as the relay relies on it."""

    next_xid: int = 100
    next_seq: int = 1
    open: dict[int, list[Written]] = field(default_factory=dict)
    committed: list[Written] = field(default_factory=list)

    def begin(self) -> int:
        self.open[self.next_xid] = []
        self.next_xid += 1
        return self.next_xid - 1

    def write(self, xid: int, bucket: int) -> None:
        before = {w.seq for w in [*self.committed, *self.open[xid]] if w.bucket == bucket}
        self.open[xid].append(Written(self.next_seq, xid, bucket, frozenset(before)))
        self.next_seq += 1

    def end(self, xid: int, commit: bool) -> None:
        rows = self.open.pop(xid)
        if commit:
            self.committed += rows

    def snapshot(self) -> Snapshot:
        return Snapshot(min(self.open, default=self.next_xid), self.next_xid, frozenset(self.open))

    def read(self, group: Group, now: Snapshot, limit: int) -> tuple[list[Written], int | None]:
        """What the relay's statement for new rows returns: a page, and up to where it went if it was full."""
        page = sorted((w for w in self.committed if self.meant(w, group, now)), key=lambda w: w.seq)[:limit]
        return page, page[-1].seq if len(page) == limit else None

    def walk(self, group: Group, now: Snapshot, span: int) -> tuple[list[Written], int | None]:
        """What its statement for the next page of a long read returns."""
        after = group.position.after
        stretch = sorted((w for w in self.committed if now.shows(w.xid) and w.seq > after), key=lambda w: w.seq)[:span]
        return [w for w in stretch if self.meant(w, group, now)], stretch[-1].seq if len(stretch) == span else None

    def meant(self, row: Written, group: Group, now: Snapshot) -> bool:
        """Whether a row lies between the group's position and the snapshot that it reads."""
        seen = Snapshot.parse(group.position.seen)
        until = Snapshot.parse(group.position.until) if group.position.until else now
        new = row.xid >= seen.xmax or row.xid in seen.xip
        return row.bucket in group.buckets and new and until.shows(row.xid) and row.seq > group.position.after


class Relay(RuleBasedStateMachine):
    """A relay against a database: any interleaving of writes, commits, reads, acknowledgements and failures."""

    transactions = Bundle("transactions")

    def __init__(self) -> None:
        super().__init__()
        self.database = Database()
        start = Position(str(self.database.snapshot()))
        self.stored = dict.fromkeys(_BUCKETS, start)
        self.progress = Progress()
        for bucket in _BUCKETS:
            self.progress.take(bucket, start)
        self.waiting: list[tuple[Written, Entry]] = []
        """Handed to Kafka, in order, and not acknowledged."""
        self.topic: list[Written] = []
        self.settled: set[int] = set()

    @rule(target=transactions)
    def begin(self) -> int:
        """A transaction gets its id."""
        return self.database.begin()

    @rule(target=transactions, bucket=st.sampled_from(_BUCKETS))
    def begin_and_commit(self, bucket: int) -> object:
        """A short transaction, with one row."""
        xid = self.database.begin()
        self.database.write(xid, bucket)
        self.database.end(xid, commit=True)
        return multiple()

    @rule(xid=transactions, bucket=st.sampled_from(_BUCKETS), count=st.integers(1, 4))
    def write(self, xid: int, bucket: int, count: int) -> None:
        """It writes rows, if it is still open."""
        if xid in self.database.open:
            for _ in range(count):
                self.database.write(xid, bucket)

    @rule(xid=transactions, commit=st.booleans())
    def end(self, xid: int, commit: bool) -> None:
        """It commits or rolls back."""
        if xid in self.database.open:
            self.database.end(xid, commit)

    @rule(
        limit=st.integers(1, 5),
        at_most=st.integers(1, 8),
        leave_out=st.sets(st.sampled_from(_BUCKETS), max_size=1),
        walk=st.booleans(),
    )
    def poll(self, limit: int, at_most: int, leave_out: set[int], walk: bool) -> None:
        """One statement for all groups, and one for each long read."""
        now = self.database.snapshot()
        for group in self.progress.groups(at_most, leave_out):
            find = self.database.walk if walk and group.position.until else self.database.read
            rows, last_seq = find(group, now, limit)
            entries = self.progress.page(group, [w.bucket for w in rows], [w.seq for w in rows], str(now), last_seq)
            self.waiting += [(w, entries[w.bucket]) for w in rows]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        """Kafka acknowledges the oldest open row of some bucket."""
        bucket = data.draw(st.sampled_from(sorted({w.bucket for w, _ in self.waiting})))
        index = next(i for i, (w, _) in enumerate(self.waiting) if w.bucket == bucket)
        row, entry = self.waiting.pop(index)
        self.topic.append(row)
        self.settled.add(row.seq)
        self.progress.settle(row.bucket, entry)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def settle_out_of_order(self, data: st.DataObject) -> None:
        """A row in the middle is settled before those ahead of it, as one that is set aside."""
        index = data.draw(st.integers(0, len(self.waiting) - 1))
        row, entry = self.waiting.pop(index)
        self.settled.add(row.seq)
        self.progress.settle(row.bucket, entry)

    @rule()
    def store(self) -> None:
        """Positions become durable."""
        positions = self.progress.done()
        self.stored.update(positions)
        self.progress.stored(positions)

    @rule(reached=st.integers(0, 3))
    def break_producer(self, reached: int) -> None:
        """Some of what is in flight arrives, nothing more is acknowledged, and all is read again."""
        self._lose(reached)
        self.progress.rewind()

    @rule(reached=st.integers(0, 3))
    def crash(self, reached: int) -> None:
        """Another replica begins at the stored positions."""
        self._lose(reached)
        self.progress = Progress()
        for bucket in _BUCKETS:
            self.progress.take(bucket, self.stored[bucket])

    @rule(bucket=st.sampled_from(_BUCKETS))
    def hand_over(self, bucket: int) -> None:
        """A bucket without open rows is given back and taken again."""
        if self.progress.settled(bucket):
            self.stored.update(self.progress.done([bucket]))
            self.progress.drop(bucket)
            self.progress.take(bucket, self.stored[bucket])

    def _lose(self, reached: int) -> None:
        self.topic += [w for w, _ in self.waiting[:reached]]
        self.waiting.clear()

    @invariant()
    def nothing_behind_a_position_is_open(self) -> None:
        """Every committed row behind a position that may be stored was settled."""
        for bucket, position in (*self.progress.done().items(), *self.stored.items()):
            seen = Snapshot.parse(position.seen)
            until = Snapshot.parse(position.until) if position.until else None
            for w in self.database.committed:
                behind = seen.shows(w.xid) or (until is not None and until.shows(w.xid) and w.seq <= position.after)
                assert w.bucket != bucket or not behind or w.seq in self.settled, (w, position)

    @invariant()
    def open_rows_are_counted(self) -> None:
        """What is handed out and open is counted, so a limit on it works."""
        assert self.progress.waiting == len(self.waiting)

    @invariant()
    def first_appearances_are_in_order(self) -> None:
        """A row first appears in the topic after the rows of its bucket that came before it, or they were set aside."""
        seen: set[int] = set()
        for row in self.topic:
            assert row.after <= seen | self.settled, row
            seen.add(row.seq)

    def teardown(self) -> None:
        """When all transactions are over and Kafka answers, every committed row is settled and nothing is left open."""
        for xid in list(self.database.open):
            self.database.end(xid, commit=True)
        for _ in range(8 * len(self.database.committed) + 8):
            self.poll(limit=3, at_most=100, leave_out=set(), walk=True)
            while self.waiting:
                row, entry = self.waiting.pop(0)
                self.topic.append(row)
                self.settled.add(row.seq)
                self.progress.settle(row.bucket, entry)
        assert {w.seq for w in self.database.committed} <= self.settled
        assert self.progress.oldest_ms() is None
        done = self.progress.done()
        assert all(Snapshot.parse(p.seen).xmin == self.database.next_xid and p.until is None for p in done.values())


TestRelay = Relay.TestCase
TestRelay.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_snapshot_reads_back_as_it_was_written() -> None:
    """PostgreSQL's text form round-trips, and the oldest transaction in progress is named."""
    assert str(Snapshot.parse("10:20:10,14,15")) == "10:20:10,14,15"
    assert Snapshot.parse("10:20:10,14").holder == 10
    assert Snapshot.parse("20:20:").holder is None
    assert [Snapshot.parse("10:20:10,14").shows(x) for x in (9, 10, 13, 14, 19, 20)] == [
        True, False, True, False, True, False,
    ]  # fmt: skip


def test_a_row_that_commits_late_is_asked_for_by_its_transaction() -> None:
    """The next position after a read names what that read could not see, and no read ends before it is acknowledged."""
    progress = Progress()
    progress.take(7, Position("5:5:"))
    (group,) = progress.groups(10)
    entry = progress.page(group, [7], [1000], "8:10:8", None)[7]
    assert progress.groups(10) == [Group(Position("8:10:8"), (7,))]
    assert progress.done() == {7: Position("5:5:")}
    assert progress.oldest_ms() == 1000
    progress.settle(7, entry)
    assert progress.done() == {7: Position("8:10:8")}
    assert progress.changed()


def test_a_long_read_goes_on_in_its_own_snapshot() -> None:
    """A full page keeps the snapshot and goes on behind its last row, also when the relay starts again in between."""
    progress = Progress()
    progress.take(1, Position("5:5:"))
    (group,) = progress.groups(10)
    entry = progress.page(group, [1, 1], [1, 2], "8:8:", 9)[1]
    for _ in range(2):
        progress.settle(1, entry)
    assert progress.done() == {1: Position("5:5:", "8:8:", 9)}
    assert progress.oldest_ms() == 2
    (group,) = progress.groups(10)
    progress.page(group, [], [], "15:15:", 11)
    assert progress.oldest_ms() == 2
    (group,) = progress.groups(10)
    assert group.position == Position("5:5:", "8:8:", 11)
    progress.page(group, [], [], "20:20:", None)
    assert progress.done() == {1: Position("8:8:")}
    assert progress.oldest_ms() is None


def test_a_bucket_with_too_many_open_rows_waits_and_the_others_go_on() -> None:
    """A bucket whose rows are not acknowledged is left out of the next read."""
    progress = Progress()
    for bucket in (1, 2):
        progress.take(bucket, Position("5:5:"))
    (group,) = progress.groups(2)
    progress.page(group, [1, 1, 2], [0, 0, 0], "8:8:", None)
    assert [g.buckets for g in progress.groups(2)] == [(2,)]
    assert progress.waiting == 3
    progress.drop(1)
    assert progress.waiting == 1


@pytest.mark.parametrize("replicas", [1, 2, 3, 7, 64, 100])
def test_shares_are_fair_and_complete(replicas: int) -> None:
    """The shares of all replicas differ by one at most and are all buckets together."""
    names = [f"replica-{n:03}" for n in range(replicas)]
    shares = [fair_share(name, list(reversed(names))) for name in names]
    assert sum(shares) == BUCKETS
    assert max(shares) - min(shares) <= 1


def test_the_pause_between_reads_grows_from_busy_to_idle() -> None:
    """After rows the next read is soon; without any the pause doubles up to the idle one, and stays there."""
    waits = [next_wait(0.1, True, 0.005, 0.1)]
    for _ in range(6):
        waits.append(next_wait(waits[-1], False, 0.005, 0.1))
    assert waits == [0.005, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1]
