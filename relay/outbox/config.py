"""Settings of the outbox relay."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.topics import Naming


@dataclass(frozen=True, slots=True)
class OutboxConfig:
    """What the relay needs to run. Times are seconds."""

    kafka: Mapping[str, str]
    """librdkafka settings with `bootstrap.servers`."""
    database_url: str = field(repr=False)
    naming: Naming = field(default_factory=Naming)
    replica: str = "outbox"
    """A name for people, in logs and in `rung.outbox_replica`; it need not be unique."""
    lease_seconds: float = 10.0
    """A replica that is silent for so long loses its buckets."""
    lease_margin_seconds: float = 3.0
    """It stops by itself this much earlier: longer than clocks drift and a request stays in a socket."""
    renew_seconds: float = 1.0
    """How often leases are renewed and buckets shared out anew."""
    busy_poll_seconds: float = 0.007
    idle_poll_seconds: float = 0.1
    page_rows: int = 2_000
    """Rows of one read; more are read in pages."""
    page_bytes: int = 16 * 1024 * 1024
    """Payload bytes of one read; one row is read whatever its size."""
    max_waiting: int = 20_000
    """Rows that Kafka has not acknowledged; beyond it no more are read."""
    max_waiting_per_bucket: int = 2_000
    """The same of one bucket; the others go on."""
    cursor_seconds: float = 1.0
    """How often positions are stored: what a crash repeats."""
    cursor_idle_seconds: float = 60.0
    """The same when nothing was published; partitions can be dropped behind stored positions only."""
    observe_seconds: float = 1.0
    """How often gauges that need a look at the database are set."""
    upkeep_seconds: float = 60.0
    """How often partitions are added and dropped."""
    partition_rows: int = 1_000_000
    partitions_ahead: int = 8
    backoff_seconds: float = 0.2
    """The first pause after Kafka or PostgreSQL failed; it doubles."""
    max_backoff_seconds: float = 5.0
    shutdown_seconds: float = 10.0
    at: Callable[[str], None] = field(default=lambda _: None, repr=False, compare=False)
    """Called with each name of `points` as the service passes there; a test may end the process in it."""
    beat: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Called with each turn of the loop, so that someone can tell a service that hangs."""
    ready: Callable[[bool], None] = field(default=lambda _: None, repr=False, compare=False)
    """Called when the service has its share of the work, and when it has lost it."""
