"""How a process is told to stop."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals(stop: threading.Event) -> None:
    """Set `stop` when the process is told to end. Only the main thread may ask for it."""
    for number in STOPPING:
        signal.signal(number, _setting(stop))


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Likewise, for as long as the block runs."""
    before = {number: signal.signal(number, _setting(stop)) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _setting(stop: threading.Event) -> Callable[[int, FrameType | None], None]:
    def handle(_: int, __: FrameType | None) -> None:
        # A handler runs in the main thread between any two of its steps. If that is waiting for this very event, it
        # may hold the event's lock just then, and to set the event here would wait for that for ever.
        _thread.start_new_thread(stop.set, ())

    return handle
