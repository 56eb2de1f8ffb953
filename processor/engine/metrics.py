"""The processor's metrics: what came in, what was decided and asked for, and how late it was."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from processor.domain.model import Command, Decision, Deliver, Emit, Event
from schemas.reasons import DeadReason, Reason
from schemas.records import EventType
from schemas.topics import PROCESSOR_INPUTS

SERVICE = "processor"
STALE_SECONDS = 5.0
"""An engine looks at its lag every second; if it has not for this long it stands still, and its lag grows."""
_LAG_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_DEPTH_BUCKETS = (0, 1, 2, 3, 4, 5, 8, 13)
_EVENTS: tuple[type, ...] = Event.__args__
_COMMANDS: tuple[type, ...] = Command.__args__
_Label = TypeVar("_Label")


class Tally(Generic[_Label]):
    """Counts of one thread, which reach their counters when somebody reads these. To count each of a record's decisions
    and commands in a counter of the library, with its lock, takes as long as to write the state."""

    def __init__(self, counters: Mapping[_Label, Counter]) -> None:
        self.counts = dict.fromkeys(counters, 0)
        self._counters = counters
        self._told = dict(self.counts)
        self._lock = threading.Lock()

    def tell(self) -> None:
        """Bring the counters up to date."""
        with self._lock:
            for label, count in self.counts.copy().items():
                if count > self._told[label]:
                    self._counters[label].inc(count - self._told[label])
                    self._told[label] = count


class _Before(Collector):
    """Has no metrics of its own, and is asked before the others."""

    def __init__(self, tallies: Iterable[Tally[Any]]) -> None:
        self._tallies = tallies

    def collect(self) -> Iterable[Metric]:
        """Tell all tallies."""
        for tally in self._tallies:
            tally.tell()
        return ()


class ProcessorMetrics:
    """All metrics of the processor, every label value at zero from the start."""

    def __init__(
        self, registry: CollectorRegistry, kinds: Iterable[str] = (), clock: Callable[[], float] = time.time
    ) -> None:
        """Register the metrics; `kinds` are those of the ladders, and `clock` tells seconds since the epoch."""
        self._tallies: list[Tally[Any]] = []
        # The first in the registry, so that the counters are brought up to date before they are read.
        registry.register(_Before(self._tallies))
        self.events = Counter(
            "rung_processor_events_total", "Records that were understood, by type.", ["type"], registry=registry
        )
        self.decisions = Counter(
            "rung_processor_decisions_total", "Decisions by their named reason.", ["reason"], registry=registry
        )
        self.commands = Counter(
            "rung_processor_commands_total", "Commands of decisions by kind.", ["command"], registry=registry
        )
        self.delivery_events = Counter(
            "rung_processor_delivery_events_total", "Published delivery events by type.", ["type"], registry=registry
        )
        self.due_lag = Histogram(
            "rung_processor_due_lag_seconds",
            "How long after its due time a step was claimed.",
            buckets=_LAG_BUCKETS,
            registry=registry,
        )
        self.last_due_lag = Gauge(
            "rung_processor_last_due_lag_seconds", "Due lag of the step claimed last.", registry=registry
        )
        self.depth = Histogram(
            "rung_processor_escalation_depth",
            "How many steps had left when the person acted, by kind.",
            ["kind"],
            buckets=_DEPTH_BUCKETS,
            registry=registry,
        )
        self.lag = Gauge(
            "rung_processor_lag_seconds",
            "Age of what waits in an input topic for this instance; 0 when nothing waits.",
            ["topic"],
            registry=registry,
        )
        self.dead_letters = Counter(
            "rung_dead_letters_total", "Records set aside.", ["service", "reason"], registry=registry
        )
        self.lags = {topic.name: LagTracker(clock) for topic in PROCESSOR_INPUTS}
        self._initialise(kinds)

    def _initialise(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            self.depth.labels(kind)
        self._event = self._tallied({cls: self.events.labels(cls.__name__) for cls in _EVENTS})
        self._decision = self._tallied({reason: self.decisions.labels(reason.value) for reason in Reason})
        self._command = self._tallied({cls: self.commands.labels(cls.__name__) for cls in _COMMANDS})
        published = {event_type: self.delivery_events.labels(event_type.value) for event_type in EventType}
        self._delivery_event = self._tallied(published)
        for dead_reason in DeadReason:
            self.dead_letters.labels(SERVICE, dead_reason.value)
        for topic, tracker in self.lags.items():
            self.lag.labels(topic).set_function(tracker.seconds)

    def _tallied(self, counters: Mapping[_Label, Counter]) -> Tally[_Label]:
        tally = Tally(counters)
        self._tallies.append(tally)
        return tally

    def decided(self, event: Event, decision: Decision, now: int) -> None:
        """Count a decision that was made at `now` (milliseconds since the epoch)."""
        self._event.counts[type(event)] += 1
        self._decision.counts[decision.reason] += 1
        for command in decision.commands:
            self._command.counts[type(command)] += 1
            if isinstance(command, Emit):
                self._delivery_event.counts[command.type] += 1
                if command.type is EventType.RESOLVED and command.event.depth is not None:
                    self.depth.labels(command.event.kind).observe(command.event.depth)
            elif isinstance(command, Deliver):
                late = max(0, now - command.delivery.due_at) / 1000
                self.due_lag.observe(late)
                self.last_due_lag.set(late)

    def dead_lettered(self, reason: DeadReason) -> None:
        """Count a record that was set aside."""
        self.dead_letters.labels(SERVICE, reason.value).inc()


class LagTracker:
    """The lag of one topic as an age, over the partitions that this instance holds.

    The age of the record that waits is not known before it is read. What is known is when the last record before it
    was written and when nothing waited last; the later of the two bounds the age from above. An engine that stands
    still is taken to be behind since it last looked. One thread writes; any may read.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._written: dict[int, float] = {}
        self._caught_up: dict[int, float] = {}
        self._waiting: dict[int, bool] = {}
        self._looked = 0.0

    def processed(self, partition: int, timestamp: int) -> None:
        """A record was processed that had been written at `timestamp` (milliseconds since the epoch)."""
        self._written[partition] = timestamp / 1000

    def looked(self, waiting: dict[int, bool]) -> None:
        """What an engine saw: its partitions, and whether a record waits in each."""
        now = self._clock()
        self._written = {p: at for p, at in self._written.items() if p in waiting}
        known = self._caught_up
        self._caught_up = {p: known[p] if w else now for p, w in waiting.items() if not w or p in known}
        self._waiting = waiting
        self._looked = now

    def seconds(self) -> float:
        """The lag now, in seconds; 0 if this instance holds no partition or nothing waits."""
        waiting, caught_up, looked = self._waiting, self._caught_up, self._looked
        now = self._clock()
        stands_still = now - looked > STALE_SECONDS
        return max(
            (
                now - (max(self._written.get(p, 0.0), caught_up.get(p, 0.0)) or looked)
                for p, waits in waiting.items()
                if waits or stands_still
            ),
            default=0.0,
        )
