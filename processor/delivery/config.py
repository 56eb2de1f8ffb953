"""What a delivery worker is told at its start; it reads no environment and no files itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from processor.delivery.channels_config import ProviderConfig
from schemas.topics import CLAIM_DEADLINE_MS, Naming


@dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """Settings of one worker process."""

    kafka: Mapping[str, str]
    """Base librdkafka configuration; holds at least `bootstrap.servers`."""
    naming: Naming
    channels: Mapping[str, tuple[ProviderConfig, ...]]
    """Per channel its providers in order of preference, as `parse_channels` returns them."""
    templates_dir: Path
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The environment variables that `channels` names, as `read_secrets` returns them."""
    instance_id: str | None = None
    """Name of this process in the group (static membership): a restart within the session time-out takes its
    partitions back at once. Without one, a stop hands the partitions over at once instead."""
    concurrency: int = 64
    """The most provider calls in flight in this process, over all providers."""
    backlog: int = 1_000
    """The most claims per partition held in memory; above it the partition's claims stay in Kafka."""
    guard_keep_ms: int = 2 * CLAIM_DEADLINE_MS
    """How long resolutions and recipient changes are remembered, and how far they are read back on assignment. A claim
    lives for one claim deadline; the second one is the margin for slow clocks."""
    answers_keep_ms: int = 5 * 60_000
    """How long outcomes are remembered, and read back on assignment, so that a claim that was answered is not called
    again. Longer than the guard's, because the processor may issue a claim again before it reads a waiting outcome."""
    commit_interval_ms: int = 200
    session_timeout_ms: int = 10_000
    """How long the group waits for a killed worker before its partitions go to others. A claim's deadline is three
    times as long, so what a killed worker held is still called in time."""
    shutdown_seconds: float = 10.0
    """The limit for calls in flight to finish at a stop. When partitions are taken away each call has its own time."""
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
