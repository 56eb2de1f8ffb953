"""What the journal measures; each event is counted after the commit that wrote it."""

from collections import Counter as Tally
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from relay.journal.events import SERVICE, Entry
from relay.journal.outcomes import concluded_as, depth_of, receipt
from schemas.reasons import DeadReason
from schemas.records import EventType
from schemas.state import StepState

OUTCOMES = ("sent", "rejected", "failed", "held", "suppressed", "delivered", "bounced")


class JournalMetrics:
    """The journal's metrics, in a registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events = Counter("rung_journal_events_total", "Events written, each once", ["type"], registry=registry)
        self.repeats = Counter(
            "rung_journal_repeats_total", "Events not written because the journal has them", registry=registry
        )
        self.past_retention = Counter(
            "rung_journal_past_retention_total",
            "Events not written because they are older than the retention",
            registry=registry,
        )
        self.lag = Gauge(
            "rung_journal_lag_seconds",
            "Age of the newest event at its commit; 0 when there is nothing more to read",
            registry=registry,
        )
        self.batch = Histogram("rung_journal_batch_seconds", "Time to write one batch", registry=registry)
        self.retries = Counter(
            "rung_journal_retries_total", "Batches tried again because PostgreSQL was away", registry=registry
        )
        self.fenced = Counter(
            "rung_journal_fenced_total", "Batches given up because another writer has the partition", registry=registry
        )
        self.depth = Histogram(
            "rung_escalation_depth",
            "How many steps had left when the person acted",
            ["kind"],
            buckets=(0, 1, 2, 3, 4, 5, 8),
            registry=registry,
        )
        self.steps = Counter(
            "rung_steps_total", "Steps by how they were concluded, and receipts", ["outcome"], registry=registry
        )
        self.cancelled = Counter(
            "rung_cancelled_steps_total", "Steps concluded without a call: suppressed", ["kind"], registry=registry
        )
        self.concluded = Counter(
            "rung_concluded_steps_total", "Steps concluded in any way", ["kind"], registry=registry
        )
        self.dead_letters = Counter(
            "rung_dead_letters_total", "Records set aside", ["service", "reason"], registry=registry
        )
        for event_type in EventType:
            self.events.labels(event_type.value)
        for outcome in OUTCOMES:
            self.steps.labels(outcome)
        for reason in DeadReason:
            self.dead_letters.labels(SERVICE, reason.value)

    def know_kind(self, kind: str) -> None:
        """Start a kind's series at zero."""
        self.depth.labels(kind)
        self.cancelled.labels(kind)
        self.concluded.labels(kind)

    def written(self, entries: Sequence[Entry]) -> None:
        """Count events that a transaction has written for the first time."""
        # Alike ones together: to find the series of each event would cost as much as to read it.
        types = Tally(entry.type for entry in entries)
        for event_type, number in types.items():
            self.events.labels(event_type.value).inc(number)
            if (name := receipt(event_type)) is not None:
                self.steps.labels(name).inc(number)
        concluded: Tally[tuple[str, StepState]] = Tally()
        for entry in entries:
            event = entry.event
            depth = depth_of(entry.type, event)
            if depth is not None:
                self.depth.labels(event.kind).observe(depth)
            state = concluded_as(entry.type, event)
            if state is not None:
                concluded[event.kind, state] += 1
        for (kind, state), number in concluded.items():
            self.steps.labels(state.value).inc(number)
            self.concluded.labels(kind).inc(number)
            # Touched as well, so that a ratio of the two has both from the first step on.
            self.cancelled.labels(kind).inc(number if state is StepState.SUPPRESSED else 0)
