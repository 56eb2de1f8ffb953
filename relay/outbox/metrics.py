"""What the relay tells about itself."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from relay.outbox.records import TOPICS
from schemas.reasons import DeadReason

_POLL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class OutboxMetrics:
    """Metrics of one relay process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.published = Counter(
            "rung_outbox_published_total", "Rows that Kafka acknowledged", ["topic"], registry=registry
        )
        self.dead = Counter("rung_outbox_dead_total", "Rows set aside in outbox_dead", ["reason"], registry=registry)
        self.poll_seconds = Histogram(
            "rung_outbox_poll_seconds", "Time of one read of the outbox", buckets=_POLL_BUCKETS, registry=registry
        )
        self.leased_buckets = Gauge("rung_outbox_leased_buckets", "Buckets that this replica holds", registry=registry)
        self.held_seconds = Gauge(
            "rung_outbox_cursor_held_seconds",
            "Age of the oldest open transaction, which holds the cursor; publication goes on",
            registry=registry,
        )
        self.held_by_pid = Gauge(
            "rung_outbox_cursor_held_by_pid", "Its server process; 0 if none or not known", registry=registry
        )
        self.waiting = Gauge("rung_outbox_waiting_rows", "Rows read and not acknowledged yet", registry=registry)
        self.failures = Counter("rung_outbox_failures_total", "Interruptions, each retried", ["of"], registry=registry)
        oldest = Gauge(
            "rung_outbox_oldest_unpublished_seconds", "Age of the oldest known unpublished row", registry=registry
        )
        self.oldest_ms: int | None = None
        oldest.set_function(self._oldest_age)
        for topic in TOPICS:
            self.published.labels(topic)
        for reason in DeadReason:
            self.dead.labels(reason.value)
        for part in ("kafka", "postgres", "lease"):
            self.failures.labels(part)

    def _oldest_age(self) -> float:
        oldest_ms = self.oldest_ms
        return 0.0 if oldest_ms is None else max(0.0, time.time() - oldest_ms / 1000)
