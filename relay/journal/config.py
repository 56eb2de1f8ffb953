"""What the journal is told at its start."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.topics import Naming


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """Settings of the journal; nothing here is read from the environment."""

    kafka: Mapping[str, str]
    """librdkafka settings common to all clients, with `bootstrap.servers`."""
    database_url: str = field(repr=False)
    """PostgreSQL, with the migrations applied."""
    naming: Naming = field(default_factory=Naming)
    instance_id: str | None = None
    """A name that this replica keeps over restarts: partitions then wait for it instead of moving twice."""
    retention_days: int = 30
    """Whole UTC days that are kept, besides today."""
    batch_size: int = 4_000
    """The most events in one transaction."""
    linger_seconds: float = 0.1
    """How long a batch waits to fill; the most that it adds to an event's way into the journal."""
    maintenance_seconds: float = 60.0
    """How often partitions are made ahead and dropped."""
    session_timeout_seconds: float = 10.0
    """After how long without a sign of life this replica's partitions go to another one."""
    shutdown_seconds: float = 10.0
    at: Callable[[str], None] = field(default=lambda _: None, repr=False, compare=False)
    """Called with each name of `points` as the service passes there; a test may end the process in it."""
    beat: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Called with each turn of the loop, so that someone can tell a service that hangs."""
    ready: Callable[[bool], None] = field(default=lambda _: None, repr=False, compare=False)
    """Called when the service has its share of the work, and when it has lost it."""
    progress: Callable[[Mapping[tuple[str, int], tuple[int, int]]], None] = field(
        default=lambda _: None, repr=False, compare=False
    )
    """Called about once a second with the position and the end of each partition that is read, by topic and number."""

    def __post_init__(self) -> None:
        for name in ("retention_days", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
