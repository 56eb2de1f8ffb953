"""One lane per recipient and channel: first in, first out, and one at a time. Pure."""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """The first item of a lane is its head and holds the lane until it is finished."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, deque[T]] = {}

    def __len__(self) -> int:
        """How many lanes hold something."""
        return len(self._lanes)

    def push(self, lane: Hashable, item: T) -> bool:
        """Put an item at the end of its lane; true if it is the head."""
        items = self._lanes.setdefault(lane, deque())
        items.append(item)
        return len(items) == 1

    def finish(self, lane: Hashable, item: T, wanted: Callable[[T], bool]) -> T | None:
        """The head is done: return the next head. Items that are not `wanted` any more are passed over. None if the
        lane is empty, or if `item` is not its head."""
        items = self._lanes.get(lane)
        if items is None or items[0] is not item:
            return None
        items.popleft()
        while items:
            if wanted(items[0]):
                return items[0]
            items.popleft()
        del self._lanes[lane]
        return None
