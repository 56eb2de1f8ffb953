"""What the delayer measures; a record is counted after the commit that forwarded it."""

import collections
import functools
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from relay.delays.records import SERVICE, Output
from schemas.reasons import DeadReason
from schemas.topics import DUE, TIERS

STALE_SECONDS = 5.0
"""The loop looks every second; if it has not for this long it stands still, and its lag grows."""
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
TARGETS = (DUE.name, *(tier.name for tier in TIERS))


class _Observed(Collector):
    """A histogram that takes the values of a transaction together: to find a bucket of the library's and to lock it for
    each record is a good part of what a record costs."""

    def __init__(self, name: str, documentation: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = bounds
        self._labels = (*(str(float(bound)) for bound in bounds), "+Inf")
        self._counts = [0] * len(self._labels)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, values: Collection[float]) -> None:
        """Count values."""
        bounds, counts = self._bounds, self._counts
        with self._lock:
            for value in values:
                counts[bisect_left(bounds, value)] += 1
            self._sum += sum(values)

    def collect(self) -> Iterable[Metric]:
        """The one family, as the library's own histogram would show it."""
        with self._lock:
            buckets, total = list(zip(self._labels, accumulate(self._counts), strict=True)), self._sum
        yield HistogramMetricFamily(self._name, self._documentation, buckets, total)


class DelaysMetrics:
    """The delayer's metrics, in a registry that is handed in, every label value at zero from the start."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.time) -> None:
        """Register the metrics; `clock` tells seconds since the epoch."""
        self._clock = clock
        self.forwarded = Counter(
            "rung_delays_forwarded_total",
            "Records forwarded: to due, or to the tier of their next wait",
            ["target"],
            registry=registry,
        )
        self.due_lag = _Observed(
            "rung_delays_due_lag_seconds", "How long after its moment a record was committed to due", _BUCKETS
        )
        registry.register(self.due_lag)
        self.transactions = Counter(
            "rung_delays_transactions_total", "Transactions by how they ended", ["outcome"], registry=registry
        )
        self.transaction_seconds = Histogram(
            "rung_delays_transaction_seconds", "Time of a transaction that was committed", registry=registry
        )
        self.sessions_lost = Counter(
            "rung_delays_sessions_lost_total", "Times that both Kafka clients were made anew", registry=registry
        )
        self.clock_steps = Counter(
            "rung_delays_clock_steps_total", "Steps of the wall clock", ["direction"], registry=registry
        )
        self.partitions = Gauge("rung_delays_partitions", "Partitions of delay topics held here", registry=registry)
        self.held = Gauge("rung_delays_held_records", "Records in memory", ["tier"], registry=registry)
        self.dead_letters = Counter(
            "rung_dead_letters_total", "Records set aside", ["service", "reason"], registry=registry
        )
        self.overdue = Gauge(
            "rung_delays_oldest_overdue_seconds",
            "For how long the record that is most overdue has been held past its moment",
            registry=registry,
        )
        self.lag = Gauge(
            "rung_delays_lag_seconds",
            "How far behind the reading of a tier is: the age past the end of its wait; 0 when in time",
            ["tier"],
            registry=registry,
        )
        self._looked = clock()
        self._oldest: dict[str, int] = {}
        self._late: dict[str, int] = {}
        self._initialise()

    def _initialise(self) -> None:
        for target in TARGETS:
            self.forwarded.labels(target)
        for outcome in ("committed", "aborted"):
            self.transactions.labels(outcome)
        for direction in ("back", "forward"):
            self.clock_steps.labels(direction)
        for reason in DeadReason:
            self.dead_letters.labels(SERVICE, reason.value)
        for tier in TIERS:
            self.held.labels(tier.name)
            self.lag.labels(tier.name).set_function(functools.partial(self._lag, tier.name))
        self.overdue.set_function(self._overdue)

    def committed(self, outputs: Collection[Output], now: int, seconds: float) -> None:
        """A transaction was committed at `now` (milliseconds since the epoch) and took `seconds`."""
        self.transactions.labels("committed").inc()
        self.transaction_seconds.observe(seconds)
        forwarded = collections.Counter(item.target.name for item in outputs if item.held.dead is None)
        for name, number in forwarded.items():
            self.forwarded.labels(name).inc(number)
        self.due_lag.observe([max(0, now - item.held.due_at) / 1000 for item in outputs if item.target is DUE])
        if forwarded.total() < len(outputs):
            for dead in (item.held.dead for item in outputs if item.held.dead is not None):
                self.dead_letters.labels(SERVICE, dead.reason.value).inc()

    def looked(
        self, partitions: int, held: dict[str, int], oldest_release: dict[str, int], late_ms: dict[str, int]
    ) -> None:
        """What the loop saw. By tier: how many records are held, when the oldest of them is to leave, and how long
        after the end of its wait one was read since the last look (where there is any)."""
        self.partitions.set(partitions)
        for tier in TIERS:
            self.held.labels(tier.name).set(held.get(tier.name, 0))
        self._oldest, self._late, self._looked = oldest_release, late_ms, self._clock()

    def _overdue(self) -> float:
        return max((self._past(at) for at in self._oldest.values()), default=0.0)

    def _lag(self, tier: str) -> float:
        oldest = self._oldest.get(tier)
        still = self._clock() - self._looked
        return max(
            0.0 if oldest is None else self._past(oldest),
            self._late.get(tier, 0) / 1000,
            still if still > STALE_SECONDS else 0.0,
        )

    def _past(self, release_at: int) -> float:
        """By how much a moment was past at the last look, or is past now if the loop stands still."""
        now = self._clock()
        return max(0.0, (now if now - self._looked > STALE_SECONDS else self._looked) - release_at / 1000)
