"""A process that is told to stop, at the worst of moments."""

from __future__ import annotations

import signal
import threading

import pytest

from deploy.signals import STOPPING, stopped_by_signals


@pytest.mark.timeout(20)
@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_in_the_middle_of_a_wait_for_the_event_stops(number: signal.Signals) -> None:
    """The handler runs between two steps of the main thread, which may hold the lock of the event then."""
    stop = threading.Event()
    before = signal.getsignal(number)
    with stopped_by_signals(stop):
        with stop._cond:  # type: ignore[attr-defined]
            signal.raise_signal(number)
        assert stop.wait(10)
    assert signal.getsignal(number) == before
