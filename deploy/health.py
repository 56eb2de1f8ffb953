"""Whether a service makes progress, and what becomes of one that does not.

A service calls `beat` with each turn of its loop, `ready` when it has its share of the work or has lost it, and
`progress` about once a second with how far it is in what it reads. Three faults follow from that:

- *stalled*: no turn for the limit. A thread hangs or has died, so the process says so and ends itself; whoever runs it
  starts it again, and what it held is taken up from where it was committed.
- *standing still*: turns, but a position that has not moved for the limit although more comes again and again. It ends
  likewise. Once is not enough: what an aborted transaction left behind, and each transaction's marker, make a
  partition longer and are never read.
- *away*: a server that the service needs does not answer. That is not the service's fault: it is not ready, it waits,
  and the time until the server is back counts for neither fault. A process that was itself frozen is not at fault
  either.

`/healthz` names a stall from half of its limit on. A call that keeps the interpreter to itself also keeps this module
from running; `/healthz` then does not answer at all, which is what a probe from outside is for.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType

import structlog

TICK_SECONDS = 0.5
FROZEN_SECONDS = 5.0
"""A watchdog that comes back so late was not running, and neither was the rest of the process."""
LATE_SECONDS = 5.0
"""How much longer than its limit a stop may take: the limit is for what is in flight, and clients close after it."""
STALLED = 70
"""The exit code of a process that ended itself because it made no progress."""

Place = tuple[str, int]
Probe = Callable[[], bool]
_log = structlog.get_logger("rung.health")


@dataclass(frozen=True, slots=True)
class _Standing:
    """A position that has not moved: where the partition ends, and from when to when more has come."""

    position: int
    end: int
    since: float
    until: float | None = None
    """When more came last; None while nothing has."""


class Health:
    """What one service says about itself. All methods may be called from any thread."""

    def __init__(self, stall_seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`stall_seconds` is how long the service may go without progress; 0 lets it go for ever."""
        self.stall_seconds = stall_seconds
        self._clock = clock
        self._beat_at = self._excused_until = clock()
        self._ready = False
        self._away: dict[str, float] = {}
        self._standing: dict[Place, _Standing] = {}

    def beat(self) -> None:
        """The loop has made a turn."""
        self._beat_at = self._clock()

    def ready(self, value: bool) -> None:
        """Whether the service has its share of the work and is at it."""
        self._ready = value

    def progress(self, places: Mapping[Place, tuple[int, int]]) -> None:
        """Of each partition that this replica reads now, by topic and number: its position and its end."""
        now, before = self._clock(), self._standing
        standing = {}
        for place, (position, end) in places.items():
            known = before.get(place)
            if known is None or known.position != position or end <= position:
                # It has moved, or there is nothing to do (or the client does not know the end yet, and says so by a
                # negative one, beside which any end would look like growth).
                standing[place] = _Standing(position, end, now)
            elif end > known.end:
                # Where there was nothing to do until now, the time counts from now on.
                standing[place] = _Standing(position, end, now if known.until is None else known.since, now)
            else:
                standing[place] = known
        self._standing = standing

    def away(self, server: str, away: bool) -> None:
        """Whether a server that the service needs gives no answer."""
        if away:
            self._away = {**self._away, server: self._clock()}
        elif server in self._away:
            self._away = {name: at for name, at in self._away.items() if name != server}
            self.excuse()

    def excuse(self) -> None:
        """What did not happen until now was not the service's fault."""
        self._excused_until = self._clock()

    def fault(self, share: float = 1.0) -> str | None:
        """What is wrong with the service if it has gone without progress for this share of its limit."""
        limit = self.stall_seconds * share
        if not limit or self._away:
            return None
        now = self._clock()
        idle = now - max(self._beat_at, self._excused_until)
        if idle > limit:
            return f"its loop has made no turn for {idle:.0f} s"
        for (topic, partition), at in self._standing.items():
            since = max(at.since, self._excused_until)
            still = now - since
            if still > limit and at.until is not None and at.until - since >= limit / 2:
                return (
                    f"{topic}[{partition}] stands still at offset {at.position} for {still:.0f} s while more comes in"
                )
        return None

    def healthz(self) -> tuple[bool, str]:
        """Whether the service makes progress or has a reason not to, and the reason."""
        fault = self.fault(0.5)
        return fault is None, fault or "ok"

    def readyz(self) -> tuple[bool, str]:
        """Whether the service is at work, and why not."""
        if self._away:
            return False, f"{' and '.join(sorted(self._away))}: no answer"
        fault = self.fault(0.5)
        if fault is not None or not self._ready:
            return False, fault or "it has no share of the work yet"
        return True, "ok"


class Watchdog:
    """Two threads beside a service: one asks its servers whether they are there, one ends a process that stalls."""

    def __init__(
        self,
        health: Health,
        probes: Mapping[str, Probe],
        stop: threading.Event,
        stop_seconds: float,
        end: Callable[[str], None] | None = None,
    ) -> None:
        """Describe what to watch.

        Args:
            health: what the service says.
            probes: by a server's name, whether it answers.
            stop: set when the service is told to stop.
            stop_seconds: how long it may take then.
            end: called once with what is wrong; ends the process if not given.
        """
        self._health = health
        self._probes = probes
        self._stop = stop
        self._stop_seconds = stop_seconds
        self._end = end or end_process
        self._done = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        for task, name in ((self._probe, "health-probe"), (self._watch, "health-watch")):
            threading.Thread(target=task, name=name, daemon=True).start()

    def close(self) -> None:
        """The service has ended; watch no more."""
        self._done.set()

    def _probe(self) -> None:
        while self._probes and not self._done.wait(probe_seconds(self._health.stall_seconds)):
            for server, answers in self._probes.items():
                away = not answers()
                if away:
                    _log.warning("server_away", server=server)
                self._health.away(server, away)

    def _watch(self) -> None:
        looked = time.monotonic()
        told_at = None
        while not self._done.wait(TICK_SECONDS):
            now = time.monotonic()
            fault = None
            if self._stop.is_set():
                told_at = told_at or now
                if now - told_at > self._stop_seconds + LATE_SECONDS:
                    fault = f"it did not stop within {self._stop_seconds:.0f} s"
            else:
                if now - looked > FROZEN_SECONDS:
                    self._health.excuse()
                fault = self._health.fault()
            looked = now
            if fault is not None:
                self._end(fault)
                return


def probe_seconds(stall_seconds: float) -> float:
    """How often to ask a server, and how long to wait for it: a server that is away is found out before the service
    that waits for it can be taken for stalled."""
    return min(5.0, stall_seconds / 4 or 5.0)


def end_process(fault: str) -> None:
    """Say what is wrong and where each thread is, and end at once: what hangs cannot be stopped in order."""
    _log.error("service_stalled", reason=fault, threads=_threads())
    sys.stderr.flush()
    os._exit(STALLED)


def _threads() -> dict[str, list[str]]:
    """The innermost places of each thread, without any values."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = {}
    for ident, innermost in sys._current_frames().items():
        places: list[str] = []
        frame: FrameType | None = innermost
        while frame is not None and len(places) < 5:
            code = frame.f_code
            places.append(f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_name}")  # noqa: PTH119
            frame = frame.f_back
        found[names.get(ident, str(ident))] = places
    return found
