"""Crash points: for tests, a service kills itself as it passes a named moment, as a crash from outside would.

Each service's `points` module lists its moments. Without `RUNG_CRASH_AT` passing one costs the call of a function that
does nothing.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Mapping

from deploy.settings import SettingsError
from processor.delivery.points import POINTS as DELIVERY
from processor.engine.points import POINTS as PROCESSOR
from relay.delays.points import POINTS as DELAYS
from relay.journal.points import POINTS as JOURNAL
from relay.outbox.points import POINTS as OUTBOX

CATALOGUE: Mapping[str, tuple[str, ...]] = {
    "outbox": OUTBOX,
    "delays": DELAYS,
    "processor": PROCESSOR,
    "deliver": DELIVERY,
    "journal": JOURNAL,
}
"""Service to the names of its points."""
At = Callable[[str], None]


def nowhere(_name: str) -> None:
    """What a point costs where none is armed."""


def armed(spec: str) -> At:
    """A function to call at every point; it kills this process at the N-th passing of the one that `spec` names.

    Args:
        spec: `name`, or `name:N` with N from 1; empty for none.

    Raises:
        SettingsError: there is no such point, or N is no such number.
    """
    if not spec:
        return nowhere
    name, colon, number = spec.partition(":")
    if not any(name in points for points in CATALOGUE.values()):
        raise SettingsError(f"RUNG_CRASH_AT: there is no crash point {name!r}")
    if colon and not (number.isascii() and number.isdecimal() and int(number) > 0):
        raise SettingsError(f"RUNG_CRASH_AT: {number!r} is not the number of a passing, which is 1 or more")
    passings = itertools.count(1)
    last = int(number or 1)

    def at(passed: str) -> None:
        # `next` on a counter is one step of the interpreter, so threads that pass at once count as two.
        if passed == name and next(passings) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    return at
