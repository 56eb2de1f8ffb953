"""The records of one partition that are held in memory, by the moment at which they leave. Pure.

Each offset that was read is held or done. The committed position is the lowest one that is held; what is done above it
is committed with it. `due` takes records out, and then either `settle` or `put_back` must follow.
"""

import heapq
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from relay.delays.progress import SPAN


class Waiting(Protocol):
    """What the window must know of a record."""

    @property
    def offset(self) -> int:
        """Its offset in the partition."""

    @property
    def release_at(self) -> int:
        """When it leaves, milliseconds since the epoch."""

    @property
    def size(self) -> int:
        """Its bytes in memory, about."""


W = TypeVar("W", bound=Waiting)


@dataclass(frozen=True, slots=True)
class Position:
    """What is committed for a partition: all below `low` is done, and `done` above it."""

    low: int
    done: frozenset[int]


@dataclass(slots=True)
class Window(Generic[W]):
    """One assigned partition; `low` and `done` are what was committed for it."""

    low: int
    done: set[int]
    capacity: int
    """The most records to hold; at this or at `capacity_bytes` the partition wants no more until half has left."""
    capacity_bytes: int
    span: int = SPAN
    _order: deque[int] = field(init=False, default_factory=deque)
    """The offsets read and not below the low one, rising; those not in `done` are held."""
    _heap: list[tuple[int, int, W]] = field(init=False, default_factory=list)
    _position: int = field(init=False)
    _bytes: int = field(init=False, default=0)
    _out: int = field(init=False, default=0)
    _paused: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._position = self.low

    @property
    def next_offset(self) -> int:
        """No record from here on has been read yet."""
        return self._position

    def expects(self, offset: int) -> bool:
        """Whether the record read at `offset`, which is not below `next_offset`, was not yet forwarded before a
        restart; only then is it to be held."""
        self._order.append(offset)
        self._position = offset + 1
        return offset not in self.done

    def hold(self, record: W) -> None:
        """Keep a record that is new here until its moment."""
        heapq.heappush(self._heap, (record.release_at, record.offset, record))
        self._bytes += record.size

    @property
    def held(self) -> int:
        """How many records are held, those taken out included."""
        return len(self._heap) + self._out

    @property
    def first_release(self) -> int | None:
        """When the next record leaves; None if none is held."""
        return self._heap[0][0] if self._heap else None

    def wants_more(self) -> bool:
        """Whether to read on. Full at the bounds, and then not again before half of what is held has left."""
        share = 2 if self._paused else 1
        full = (
            self.held >= max(1, self.capacity // share)
            or self._bytes >= max(1, self.capacity_bytes // share)
            # The next record may lie anywhere above; one that lies beyond the span waits in `due`.
            or self._position - self._lowest(()) >= self.span // share
        ) and self.held > 0
        self._paused = full
        return not full

    def due(self, now: int, limit: int) -> list[W]:
        """Take out at most `limit` records whose moment has come, in the order of their moments.

        A record too far above the lowest held one stays: that it is done could not be committed.
        """
        taken: list[W] = []
        beyond: list[tuple[int, int, W]] = []
        end = self._lowest(()) + self.span
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= now and len(taken) < limit:
            entry = pop(heap)
            if entry[1] < end:
                taken.append(entry[2])
            else:
                beyond.append(entry)
        for entry in beyond:
            heapq.heappush(heap, entry)
        self._out += len(taken)
        return taken

    def position(self, taken: Iterable[W]) -> Position:
        """What to commit when the records taken out are forwarded."""
        offsets = {record.offset for record in taken}
        low = self._lowest(offsets)
        return Position(low, frozenset([o for done in (self.done, offsets) for o in done if o >= low]))

    def settle(self, taken: Collection[W]) -> None:
        """The records taken out are forwarded, and committed as such."""
        self.done.update([record.offset for record in taken])
        order, done = self._order, self.done
        while order and order[0] in done:
            done.remove(order.popleft())
        self.low = order[0] if order else self._position
        self._out -= len(taken)
        self._bytes -= sum([record.size for record in taken])

    def put_back(self, taken: Collection[W]) -> None:
        """The records taken out were not forwarded."""
        for record in taken:
            heapq.heappush(self._heap, (record.release_at, record.offset, record))
        self._out -= len(taken)

    def clock_set_back(self, latest: int) -> None:
        """No record waits longer than until `latest`, what a record appended now would wait for."""
        self._heap = [(min(at, latest), offset, record) for at, offset, record in self._heap]
        heapq.heapify(self._heap)

    def _lowest(self, taken: Collection[int]) -> int:
        """The lowest offset that is neither done nor in `taken`."""
        for offset in self._order:
            if offset not in self.done and offset not in taken:
                return offset
        return self._position
