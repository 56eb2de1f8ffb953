"""The state of one recipient, as it stands in the store and its changelog. It outlives deploys, so it is a schema."""

from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from schemas.base import Record
from schemas.profile import DeadContact, Profile


class RetryPolicy(Record, frozen=True, kw_only=True):
    """Bounded attempts with exponential backoff: `base_ms * 2**(attempt-1)`, at most `cap_ms`."""

    max_attempts: int = 4
    base_ms: int = 1_000
    cap_ms: int = 30_000
    jitter: float = 0.2
    """The largest share by which a delay may be shorter than the backoff; 0 makes the schedule exact."""


class LadderStep(Record, frozen=True, kw_only=True):
    """One rung: a channel, how long after acceptance, and the template to fill."""

    channel: str
    after_ms: int
    template: str


class Ladder(Record, frozen=True, kw_only=True):
    """The ladder of one kind; a running notification keeps the snapshot that it was accepted with."""

    kind: str
    steps: tuple[LadderStep, ...]
    stop_on: Literal["resolution", "sent", "delivered"] = "resolution"
    expires_after_ms: int = 86_400_000
    quiet_hours: Literal["shift", "ignore"] = "shift"
    ordering: Literal["first-attempt", "strict"] = "first-attempt"
    retry: RetryPolicy = RetryPolicy()


class StepState(StrEnum):
    """Pending and claimed are open; the others are final."""

    PENDING = "pending"
    CLAIMED = "claimed"
    SENT = "sent"
    REJECTED = "rejected"
    FAILED = "failed"
    HELD = "held"
    SUPPRESSED = "suppressed"


class Step(Record, frozen=True, kw_only=True):
    """One step of a running or ended notification."""

    step_no: int
    channel: str
    due_at: int
    state: StepState = StepState.PENDING
    attempts: int = 0
    """Provider calls that were made or may have been made."""
    claim: int = 0
    """The number of the last claim."""
    claim_deadline: int | None = None
    reason: str | None = None
    """Why it ended, where it ended without being sent."""
    lookup: bool = False
    provider: str | None = None
    """The provider to stay with, where an attempt's outcome is not known."""
    address_hash: str | None = None
    """A fingerprint of the address of the last claim: a refusal is about that address, not about a newer one."""
    waiting: bool = False
    """It is due, and its kind's strict ordering holds it back."""


class End(StrEnum):
    """How a notification ended."""

    RESOLVED = "resolved"
    EXPIRED = "expired"
    FINISHED = "finished"
    DEAD = "dead"
    ERASED = "erased"


class Notification(Record, frozen=True, kw_only=True):
    """One notification. After its end the ladder and the data are gone; the rest stays until `purge_at`."""

    notification_id: UUID
    kind: str
    body_hash: str
    order: int
    """The place in the recipient's order of acceptance."""
    accepted_at: int
    expires_at: int
    steps: tuple[Step, ...]
    ladder: Ladder | None = None
    data: dict[str, Any] = {}
    asked_expires_at: int | None = None
    """The expiry that the request named, if it named one."""
    redrives: tuple[str, ...] = ()
    """Fingerprints of the redrives that opened it again."""
    ended: End | None = None
    ended_at: int | None = None
    purge_at: int | None = None


class EarlyResolution(Record, frozen=True, kw_only=True):
    """A resolution that waits for its notification."""

    resolution: str
    at: int
    purge_at: int


class RecipientState(Record, frozen=True, kw_only=True):
    """All that is known of one recipient. Notifications and early resolutions are keyed by dedup key."""

    recipient: str
    profile: Profile | None = None
    dead_contacts: dict[str, DeadContact] = {}
    notifications: dict[str, Notification] = {}
    early: dict[str, EarlyResolution] = {}
    seen: tuple[str, ...] = ()
    """Fingerprints of the last inputs from the outbox; the relay may publish a row twice."""
    accepted: int = 0
    """How many notifications were accepted so far: the next one's `order`."""
    wake_at: int | None = None
    """When the earliest outstanding wake-up is due."""
    profile_at: int | None = None
    """When the profile was last replaced or erased: what was set aside before and comes back later is superseded."""
    forget_at: int | None = None
    """Of an erased recipient: when even the memory of the erasure goes."""
