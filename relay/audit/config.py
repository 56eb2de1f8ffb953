"""What the audit is told at its start."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.topics import Naming


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Settings of the audit; nothing here is read from the environment."""

    kafka: Mapping[str, str] = field(repr=False)
    """librdkafka settings common to all clients, with `bootstrap.servers`."""
    database_url: str = field(repr=False)
    """PostgreSQL, with the migrations applied. A role needs SELECT on the tables `outbox`, `outbox_dead`,
    `outbox_cursor`, `journal_offset` and `delivery_event` of the schema `rung`, and no other right."""
    naming: Naming = field(default_factory=Naming)
    since: int | None = None
    """Audit what happened from this moment on (milliseconds); None is all that the topic still holds."""
    settle_seconds: float = 60.0
    """How long a request may wait for the relay and for the processor: the most that a single run takes, besides the
    reading. One that both say they are done with is judged at once."""
    tolerance_seconds: float = 60.0
    """How late a step may be, beyond the deadline of a claim and its grace."""
    interval_seconds: float = 10.0
    """Between two rounds that go on for ever."""
    retention_days: int = 30
    """How long the journal keeps events."""
    metrics: tuple[str, ...] = ()
    """Addresses of the journal services' metrics, all of them, to be held against the recount as well."""
    shutdown_seconds: float = 10.0
    ready: Callable[[bool], None] = field(default=lambda _: None, repr=False, compare=False)
    """Called when a round has ended, and when one was cut short."""

    @property
    def settle_ms(self) -> int:
        """`settle_seconds` in milliseconds."""
        return round(self.settle_seconds * 1000)

    @property
    def tolerance_ms(self) -> int:
        """`tolerance_seconds` in milliseconds."""
        return round(self.tolerance_seconds * 1000)
