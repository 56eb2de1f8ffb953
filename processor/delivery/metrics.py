"""Metrics of the delivery workers."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from schemas.reasons import DeadReason, Reason

ATTEMPT_OUTCOMES = ("sent", "rejected", "failed", "unknown")
SUPPRESSED_REASONS = (Reason.RESOLVED, Reason.CONSENT_WITHDRAWN, Reason.ERASED, Reason.EXPIRED)
UNCLAIMED_REASONS = ("deadline", "stalled", "stopping")
CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0)


class DeliveryMetrics:
    """One object per worker. Every label value stands at zero from the start."""

    def __init__(self, registry: CollectorRegistry, providers: Iterable[tuple[str, str]]) -> None:
        """`providers` are (provider name, channel)."""
        self.attempts = Counter(
            "rung_delivery_attempts",
            "Provider calls by what the provider answered",
            ["provider", "channel", "outcome"],
            registry=registry,
        )
        self.latency = Histogram(
            "rung_delivery_latency_seconds",
            "Length of provider calls",
            ["provider"],
            buckets=CALL_BUCKETS,
            registry=registry,
        )
        self.wait = Histogram(
            "rung_delivery_wait_seconds",
            "From the claim to the start of its provider call",
            buckets=WAIT_BUCKETS,
            registry=registry,
        )
        self.in_flight = Gauge("rung_delivery_in_flight", "Provider calls under way", registry=registry)
        self.backlog = Gauge("rung_delivery_backlog", "Claims held and not settled", registry=registry)
        self.lag = Gauge(
            "rung_delivery_lag_seconds", "Age of the oldest claim read and not settled, 0 if none", registry=registry
        )
        self.partitions = Gauge(
            "rung_delivery_partitions", "Partitions that this worker has and has read back", registry=registry
        )
        self.suppressed = Counter(
            "rung_delivery_suppressed",
            "Claims stopped by the last-moment check, by reason",
            ["reason"],
            registry=registry,
        )
        self.unclaimed = Counter(
            "rung_delivery_unclaimed",
            "Claims handed back without a call, by reason",
            ["reason"],
            registry=registry,
        )
        self.repeated = Counter(
            "rung_delivery_repeated",
            "Claims that had been answered before and were not called again",
            registry=registry,
        )
        self.resolved_in_flight = Counter(
            "rung_delivery_resolved_in_flight",
            "Resolutions that arrived while the provider call was under way",
            registry=registry,
        )
        self.adapter_errors = Counter(
            "rung_delivery_adapter_errors", "Unexpected exceptions in an adapter", ["provider"], registry=registry
        )
        self.paused = Gauge(
            "rung_delivery_provider_paused",
            "1 while a provider's Retry-After keeps all calls back",
            ["provider"],
            registry=registry,
        )
        self.skipped = Counter(
            "rung_delivery_unreadable",
            "Records of resolutions and outcomes that could not be read; their dead letter is the processor's",
            ["topic"],
            registry=registry,
        )
        self.dead_letters = Counter(
            "rung_dead_letters", "Records set aside, by service and reason", ["service", "reason"], registry=registry
        )
        self._initialise(providers)

    def _initialise(self, providers: Iterable[tuple[str, str]]) -> None:
        for provider, channel in providers:
            for outcome in ATTEMPT_OUTCOMES:
                self.attempts.labels(provider, channel, outcome)
            self.latency.labels(provider)
            self.paused.labels(provider)
            self.adapter_errors.labels(provider)
        for reason in SUPPRESSED_REASONS:
            self.suppressed.labels(reason)
        for cause in UNCLAIMED_REASONS:
            self.unclaimed.labels(cause)
        for topic in ("resolutions", "outcomes"):
            self.skipped.labels(topic)
        for dead in DeadReason:
            self.dead_letters.labels("delivery", dead)

    def observe(
        self, backlog: Callable[[], float], lag_seconds: Callable[[], float], partitions: Callable[[], float]
    ) -> None:
        """Let these gauges ask at each scrape."""
        self.partitions.set_function(partitions)
        self.backlog.set_function(backlog)
        self.lag.set_function(lag_seconds)
