"""How far each bucket is read and published: pure bookkeeping, without a clock, a database or Kafka.

A `Position` stands between rows. Its `seen` is a snapshot all of whose rows lie behind it. While a long read is under
way, `until` is the snapshot that is being read, and of its rows those up to `after` lie behind the position too.

Each bucket has two positions. `read` is where the next read goes on; `done` is what may be stored: everything behind
it is acknowledged by Kafka or set aside. Between the two lie entries, one per page that held rows of the bucket, in
order; `done` moves over an entry when all its rows are settled, and never past one that is not.

Invariants, for one replica and one bucket:
1. Rows are handed out in an order in which each comes after all rows that were committed before it was written.
2. Behind `done` every row is settled. So a replica that starts at a stored `done` misses none.
3. What is handed out from a `done` on is all rows after it, in order, without a gap.
From 3 follows that two replicas that publish the same bucket by mistake (a paused process whose lease was taken over)
cannot change the order in which the rows first appear: each writes an ordered run without gaps, and so does any
interleaving of the two, if repeats are dropped.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

BUCKETS = 64


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A `pg_snapshot`: which transactions were over when it was taken."""

    xmin: int
    """All ids below are over."""
    xmax: int
    """All ids from here on had not started."""
    xip: frozenset[int]
    """In between, these were in progress."""

    @classmethod
    def parse(cls, text: str) -> "Snapshot":
        """Read PostgreSQL's text form, `xmin:xmax:xip,…`."""
        xmin, xmax, xip = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, filter(None, xip.split(",")))))

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.xip)))}"

    def shows(self, xid: int) -> bool:
        """Whether the rows of this transaction are visible, if it committed."""
        return xid < self.xmax and xid not in self.xip

    @property
    def holder(self) -> int | None:
        """The oldest transaction in progress: the one that holds `cursor_xid`."""
        return self.xmin if self.xmin < self.xmax else None


class Position(NamedTuple):
    """A place between rows; snapshots in PostgreSQL's text form."""

    seen: str
    until: str | None = None
    after: int = 0


class Group(NamedTuple):
    """Buckets that go on from the same position, and are read together."""

    position: Position
    buckets: tuple[int, ...]

    def after(self, snapshot: str, last_seq: int | None) -> "Group":
        """The group once a page was read in `snapshot`, up to `last_seq` if there may be more in it."""
        seen, until, _ = self.position
        if last_seq is None:
            return Group(Position(until or snapshot), self.buckets)
        return Group(Position(seen, until or snapshot, last_seq), self.buckets)


class Entry:
    """The rows of one bucket on one page (or several pages, if the later ones held none)."""

    __slots__ = ("left", "oldest_ms", "open", "position")

    def __init__(self, position: Position, oldest_ms: int, rows: int) -> None:
        self.position = position
        """Where the bucket is when these rows are settled."""
        self.left = rows
        """Rows that are not settled yet."""
        self.open = True
        """Whether it still counts: a rewind or the loss of its bucket ends that."""
        self.oldest_ms = oldest_ms
        """When the first of them was written."""


class _Bucket:
    __slots__ = ("behind_ms", "changed", "done", "entries", "read", "waiting")

    def __init__(self, position: Position) -> None:
        self.read = position
        self.done = position
        self.entries: deque[Entry] = deque()
        self.waiting = 0
        """Rows that are handed out and not settled."""
        self.changed = False
        """Whether rows were settled since `done` was stored."""
        self.behind_ms: int | None = None
        """In a long read: when the last row that was read was written; the next one is about as old."""


class Progress:
    """The positions of the buckets that this replica holds."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._waiting = 0

    def __contains__(self, bucket: int) -> bool:
        return bucket in self._buckets

    def __len__(self) -> int:
        return len(self._buckets)

    @property
    def waiting(self) -> int:
        """Rows that are handed out and not settled, over all buckets."""
        return self._waiting

    def take(self, bucket: int, position: Position) -> None:
        """Begin with a bucket at its stored position."""
        if bucket in self._buckets:
            self.drop(bucket)
        self._buckets[bucket] = _Bucket(position)

    def drop(self, bucket: int) -> None:
        """Forget a bucket; what was handed out of it is not counted any more."""
        gone = self._buckets.pop(bucket)
        self._waiting -= gone.waiting
        for entry in gone.entries:
            entry.open = False

    def settled(self, bucket: int) -> bool:
        """Whether nothing of this bucket is handed out and open."""
        return not self._buckets[bucket].entries

    def groups(self, at_most: int, leave_out: Collection[int] = ()) -> list[Group]:
        """What to read next: all buckets by position, but those to leave out and those with `at_most` open rows."""
        by_position: dict[Position, list[int]] = {}
        for number, bucket in self._buckets.items():
            if bucket.waiting < at_most and number not in leave_out:
                by_position.setdefault(bucket.read, []).append(number)
        return [Group(position, tuple(numbers)) for position, numbers in by_position.items()]

    def page(
        self,
        group: Group,
        buckets: Sequence[int],
        written_ms: Sequence[int],
        snapshot: str,
        last_seq: int | None,
    ) -> Mapping[int, Entry]:
        """Note that a page was read, and return the entry of each bucket that had rows on it.

        Args:
            group: as `groups` returned it.
            buckets: the bucket of each row, in sequence.
            written_ms: when each was written.
            snapshot: the one in which the page was read.
            last_seq: up to where it was read, if there may be more in that snapshot.
        """
        oldest = dict(zip(reversed(buckets), reversed(written_ms), strict=True))
        entries = {number: Entry(group.position, oldest[number], rows) for number, rows in Counter(buckets).items()}
        last_ms = written_ms[-1] if written_ms else None
        done = last_seq is None
        after = group.after(snapshot, last_seq).position
        for number in group.buckets:
            bucket = self._buckets[number]
            bucket.behind_ms = None if done else last_ms or bucket.behind_ms
            self._advance(bucket, after, entries.get(number))
        return entries

    def _advance(self, bucket: _Bucket, after: Position, entry: Entry | None) -> None:
        bucket.read = after
        if entry is not None:
            entry.position = after
            bucket.entries.append(entry)
            bucket.waiting += entry.left
            self._waiting += entry.left
        elif bucket.entries:
            # No rows: the place after the last open entry is this one.
            bucket.entries[-1].position = after
        else:
            bucket.done = after

    def settle(self, number: int, entry: Entry, rows: int = 1) -> None:
        """So many rows of the entry are acknowledged or set aside. Entries from before a rewind or a drop count
        nothing."""
        if not entry.open:
            return
        bucket = self._buckets[number]
        entry.left -= rows
        bucket.waiting -= rows
        self._waiting -= rows
        while bucket.entries and bucket.entries[0].left == 0:
            bucket.done = bucket.entries.popleft().position
            bucket.changed = True

    def rewind(self) -> None:
        """Go back to what is settled: everything handed out since will be handed out again, in the same order."""
        for bucket in self._buckets.values():
            bucket.read, bucket.behind_ms = bucket.done, None
            for entry in bucket.entries:
                entry.open = False
            bucket.entries.clear()
            bucket.waiting = 0
        self._waiting = 0

    def done(self, numbers: Iterable[int] | None = None) -> dict[int, Position]:
        """What may be stored, of all buckets or of these."""
        chosen = self._buckets if numbers is None else numbers
        return {number: self._buckets[number].done for number in chosen}

    def changed(self) -> bool:
        """Whether rows were settled since the last `stored`."""
        return any(bucket.changed for bucket in self._buckets.values())

    def stored(self, positions: Mapping[int, Position]) -> None:
        """Note that these positions are stored."""
        for number, position in positions.items():
            bucket = self._buckets[number]
            bucket.changed = bucket.changed and bucket.done != position

    def oldest_ms(self) -> int | None:
        """When the oldest row that is known and not settled was written; None if there is none."""
        times = [b.entries[0].oldest_ms for b in self._buckets.values() if b.entries]
        times += [b.behind_ms for b in self._buckets.values() if b.behind_ms is not None]
        return min(times, default=None)


def fair_share(replica: str, replicas: Sequence[str], buckets: int = BUCKETS) -> int:
    """How many buckets a replica should hold: the same for each, and one more for the first few by id."""
    place = sorted(replicas).index(replica)
    base, rest = divmod(buckets, len(replicas))
    return base + (1 if place < rest else 0)


def next_wait(last: float, found: bool, busy: float, idle: float) -> float:
    """How long to wait before the next read: short after rows were found, then twice as long each time, up to idle."""
    return busy if found else min(max(last, busy) * 2, idle)
