"""The contract of an adapter: one call to one provider, and one of four results. It never raises on purpose.

What an adapter must tell apart is whether the provider may have accepted the message. A call that certainly was not
accepted is `Failed` and safe to repeat anywhere; one that may have been is `Unknown`, and the provider's policy
decides.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from processor.delivery.templates import Message


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt. `to`, `message` and `data` are never logged."""

    key: str
    """What the provider sees as idempotency key: the same for every attempt at the step."""
    notification_id: UUID
    recipient: str
    kind: str
    step_no: int
    channel: str
    to: str = field(repr=False)
    message: Message = field(repr=False)
    data: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Sent:
    """The provider accepted the message; `provider_ref` is its own name for it."""

    provider_ref: str | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """The provider refused for good: the address is dead, or (`contact_alive`) this message is not acceptable."""

    reason: str
    contact_alive: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The provider did not accept the message and may later. `retry_after_ms` is what it asked for. `pause_ms` is how
    long it wants no calls at all, where that is clear."""

    reason: str
    retry_after_ms: int | None = None
    pause_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The call left and no answer came: it may have been accepted."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotFound:
    """The provider does not know the key: it accepted nothing under it."""


Result = Sent | Rejected | Failed | Unknown
Answer = Sent | NotFound | Failed


class Adapter(Protocol):
    """One provider."""

    def target(self, to: str, /) -> str:
        """Whose Retry-After counts: empty for the provider as a whole, else the recipient's own server."""

    async def send(self, call: Call) -> Result:
        """Make the call, within the provider's time-out."""

    async def lookup(self, key: str, /) -> Answer:
        """Ask whether an earlier call with this key was accepted. Adapters that cannot ask say `Failed`."""

    async def close(self) -> None:
        """Close connections; no call is in flight any more."""
