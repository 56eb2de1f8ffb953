"""Which offset of a partition may be committed: the one below which everything is settled. Pure."""

from collections import deque


class OffsetTracker:
    """Offsets are added in order and settled in any order."""

    def __init__(self) -> None:
        self._open: deque[tuple[int, int]] = deque()
        self._settled: set[int] = set()
        self._next: int | None = None

    def __len__(self) -> int:
        """How many offsets are not settled."""
        return len(self._open) - len(self._settled)

    @property
    def committable(self) -> int | None:
        """The offset to commit, which is where a reader would go on; None before the first one."""
        return self._open[0][0] if self._open else self._next

    @property
    def oldest(self) -> int | None:
        """The moment given with the first record that is not settled, milliseconds since the epoch."""
        return self._open[0][1] if self._open else None

    def add(self, offset: int, timestamp: int) -> bool:
        """A record was read; false if it was read before."""
        if self._next is not None and offset < self._next:
            return False
        self._open.append((offset, timestamp))
        self._next = offset + 1
        return True

    def settle(self, offset: int) -> None:
        """Everything about this record is done and acknowledged; a second time changes nothing."""
        if not self._open or offset < self._open[0][0]:
            return
        self._settled.add(offset)
        while self._open and self._open[0][0] in self._settled:
            self._settled.discard(self._open.popleft()[0])
