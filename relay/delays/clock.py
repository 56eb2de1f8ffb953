"""The wall clock, and its steps."""

import time
from collections.abc import Callable

STEP_MS = 500
"""What counts as a step: a clock that is slewed moves by half a millisecond per second at most, and the loop looks
several times a second."""


class WallClock:
    """Milliseconds since the epoch. Moments are absolute, so the wall clock decides what is due; the monotonic clock
    only tells when the wall clock was set."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._apart = self._now_apart()

    def now(self) -> int:
        """The wall clock."""
        return self._wall_ns() // 1_000_000

    def step_ms(self) -> int:
        """By how much the wall clock was set since the last call; 0 for no step, negative for back."""
        apart = self._now_apart()
        step = (apart - self._apart) // 1_000_000
        self._apart = apart
        return step if abs(step) >= STEP_MS else 0

    def _now_apart(self) -> int:
        return self._wall_ns() - self._monotonic_ns()
