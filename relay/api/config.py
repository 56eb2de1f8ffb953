"""What the API is told at its start."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.topics import Naming


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """Settings of the API; nothing here is read from the environment."""

    database_url: str = field(repr=False)
    """PostgreSQL, as a user with `rung_producer` and `rung_reader`."""
    kafka: Mapping[str, str] | None = None
    """librdkafka settings; with them the API takes provider receipts, without them it has no such route."""
    naming: Naming = field(default_factory=Naming)
    host: str = "127.0.0.1"
    port: int = 8080
    """0 picks a free one; `on_listening` of `run` is told which."""
    token: str | None = field(default=None, repr=False)
    """The bearer token that `/v1` asks for, if set."""
    body_limit: int = 1_048_576
    """Bytes of a request's body; about what a Kafka record takes."""
    pool_size: int = 8
    """Connections to PostgreSQL: how many requests write at the same time."""
    database_wait_seconds: float = 5.0
    """How long a request waits for a connection before it is answered 503."""
    kafka_wait_seconds: float = 5.0
    """How long a receipt waits for Kafka's acknowledgement before it is answered 503."""
    shutdown_seconds: float = 10.0
    beat: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Called several times a second by the event loop, so that someone can tell a service that hangs."""
    ready: Callable[[bool], None] = field(default=lambda _: None, repr=False, compare=False)
    """Called when requests are taken, and when they are not any more."""
