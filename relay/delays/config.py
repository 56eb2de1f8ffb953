"""What the delayer is told at its start."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.topics import Naming

TRANSACTION_TIMEOUT_SECONDS = 10.0
"""After this long the coordinator aborts a transaction whose producer is gone. A transaction here takes milliseconds;
the time bounds how long readers of `due` wait behind a crash of an instance that does not come back."""


@dataclass(frozen=True, slots=True)
class DelaysConfig:
    """Settings of the delayer; nothing here is read from the environment."""

    kafka: Mapping[str, str]
    """librdkafka settings common to all clients, with `bootstrap.servers`."""
    instance_id: str
    """A name that this instance keeps over restarts and that no other running instance has."""
    naming: Naming = field(default_factory=Naming)
    read_ahead: int = 4_096
    """The most records held in memory per partition of a whole tier, where they leave in the order of their offsets, or
    within the half second by which a tier may overshoot: up to eight times so many a second leave in time."""
    read_ahead_last: int = 8_192
    """The most records held per partition of the smallest tier: what can become due within its one second."""
    read_ahead_bytes: int = 4 * 1024 * 1024
    """The most bytes of keys and values held per partition; one record is always held, however large."""
    batch_size: int = 2_000
    """The most records in one transaction."""
    transaction_interval_seconds: float = 0.05
    """The least time between the starts of two transactions; what it adds to lateness it saves in markers and CPU. A
    full one that was committed is followed at once."""
    session_timeout_seconds: float = 10.0
    """After how long without a sign of life this instance's partitions go to another one."""
    shutdown_seconds: float = 10.0
    at: Callable[[str], None] = field(default=lambda _: None, repr=False, compare=False)
    """Called with each name of `points` as the service passes there; a test may end the process in it."""
    beat: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Called with each turn of the loop, so that someone can tell a service that hangs."""
    ready: Callable[[bool], None] = field(default=lambda _: None, repr=False, compare=False)
    """Called when the service has its share of the work, and when it has lost it."""

    def __post_init__(self) -> None:
        for name in ("read_ahead", "read_ahead_last", "read_ahead_bytes", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.instance_id:
            raise ValueError("instance_id must not be empty")

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.naming.prefix + "rung-delays"

    @property
    def transactional_id(self) -> str:
        """The producer's identity over restarts."""
        return transactional_id(self.group, self.instance_id)


def transactional_id(group: str, instance_id: str) -> str:
    """The producer's identity over restarts, of one instance of a group."""
    return f"{group}-{instance_id}"
