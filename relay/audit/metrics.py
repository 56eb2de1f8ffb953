"""What the audit measures: violations, which must stay 0, and what it has looked at."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge

from relay.audit.rules import Rule

CHECKED = ("events", "notifications", "outbox_rows", "journal_rows")


class AuditMetrics:
    """The audit's metrics, in a registry that is handed in; every rule is there from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.violations = Counter(
            "rung_audit_violations_total", "Promises that were not kept, each once", ["rule"], registry=registry
        )
        self.checked = Counter(
            "rung_audit_checked_total",
            "What was audited: events of the topic, notifications begun, rows of the outbox and of the journal",
            ["what"],
            registry=registry,
        )
        self.open = Gauge("rung_audit_open_notifications", "Notifications that have not ended", registry=registry)
        self.waiting = Gauge(
            "rung_audit_waiting_requests", "Requests of the outbox that are not answered yet", registry=registry
        )
        self.failures = Counter(
            "rung_audit_failures_total",
            "Rounds that Kafka or PostgreSQL cut short; the next goes on",
            registry=registry,
        )
        age = Gauge(
            "rung_audit_last_run_age_seconds",
            "Time since the last whole round ended, or since the start",
            registry=registry,
        )
        self._last = time.monotonic()
        age.set_function(lambda: time.monotonic() - self._last)
        for rule in Rule:
            self.violations.labels(rule.value)
        for what in CHECKED:
            self.checked.labels(what)

    def ended(self) -> None:
        """A round has ended."""
        self._last = time.monotonic()
