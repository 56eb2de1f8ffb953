"""The records on the topics, one struct each, tagged by their CloudEvents type (`TYPE`)."""

from enum import StrEnum
from typing import Any, ClassVar
from uuid import UUID

from schemas.base import Record
from schemas.profile import DeadContact, Profile


class Notify(Record, frozen=True, kw_only=True):
    """A business service asks that this recipient be told this thing, once."""

    TYPE: ClassVar[str] = "rung.notify"
    notification_id: UUID
    recipient: str
    kind: str
    dedup_key: str
    data: dict[str, Any] = {}
    """What the templates may use. Never logged."""
    expires_at: int | None = None


class Redrive(Record, frozen=True, kw_only=True):
    """An operator asks that the ladder of a notification be opened again that ended `dead`: the request as it lies in
    its dead letter, and an id that makes it count once."""

    TYPE: ClassVar[str] = "rung.redrive"
    redrive_id: UUID
    notification_id: UUID
    recipient: str
    kind: str
    dedup_key: str
    data: dict[str, Any] = {}
    """What the templates may use. Never logged."""
    expires_at: int | None = None


class Resolve(Record, frozen=True, kw_only=True):
    """The person acted: whatever is pending for this dedup key is not needed any more."""

    TYPE: ClassVar[str] = "rung.resolve"
    recipient: str
    dedup_key: str
    resolution: str
    """What happened, in the business's words (`paid`, `read`, `signed`)."""


class PutRecipient(Record, frozen=True, kw_only=True):
    """The recipient's whole profile; it replaces the one before."""

    TYPE: ClassVar[str] = "rung.put_recipient"
    recipient: str
    profile: Profile


class EraseRecipient(Record, frozen=True, kw_only=True):
    """Forget this person: everything pending stops and every personal field leaves the state."""

    TYPE: ClassVar[str] = "rung.erase_recipient"
    recipient: str


class RecipientProfile(Record, frozen=True, kw_only=True):
    """The profile as the processor applied it (topic `recipients`; a null value is an erased recipient)."""

    TYPE: ClassVar[str] = "rung.recipient"
    recipient: str
    profile: Profile
    dead_contacts: dict[str, DeadContact] = {}


class Due(Record, frozen=True, kw_only=True):
    """A wake-up for one recipient. It says nothing about what is due: the processor looks at the state, so a
    cancelled wait costs nothing and a repeated or late wake-up is harmless."""

    TYPE: ClassVar[str] = "rung.due"
    recipient: str
    due_at: int


class Delivery(Record, frozen=True, kw_only=True):
    """A claim: one attempt at one step, to be made before `claim_deadline` or handed back."""

    TYPE: ClassVar[str] = "rung.delivery"
    notification_id: UUID
    recipient: str
    kind: str
    dedup_key: str
    step_no: int
    """Counted from 0, in the ladder's order."""
    channel: str
    address: str
    template: str
    data: dict[str, Any] = {}
    locale: str | None = None
    attempt: int
    """Counted from 1."""
    claim: int
    """Counted from 1; a claim that is issued again has the next number and the same key."""
    key: str
    """`notification_id:step_no`, what the provider sees as idempotency key; the same for every attempt."""
    claimed_at: int
    claim_deadline: int
    due_at: int
    expires_at: int
    lookup: bool = False
    """Ask the provider for the key before sending: an earlier attempt may have been accepted."""
    provider: str | None = None
    """Stay with this provider: it may have accepted an earlier attempt, and only it would know the key."""


class OutcomeKind(StrEnum):
    """What became of a claim (the first six, from the worker) or of a message that was sent (receipts)."""

    SENT = "sent"
    REJECTED = "rejected"
    FAILED = "failed"
    UNKNOWN = "unknown"
    UNCLAIMED = "unclaimed"
    SUPPRESSED = "suppressed"
    DELIVERED = "delivered"
    BOUNCED = "bounced"


class UnknownPolicy(StrEnum):
    """What to do when a provider may have accepted a message and did not say so."""

    RESEND = "resend"
    """Its API honours the key: send again with the same key."""
    LOOKUP = "lookup"
    """It can be asked for the key before sending again."""
    HOLD = "hold"
    """Neither: do not send this step again."""


class Outcome(Record, frozen=True, kw_only=True):
    """What became of a claim, written by the worker that held it, or by the receipt endpoint."""

    TYPE: ClassVar[str] = "rung.outcome"
    notification_id: UUID
    recipient: str
    dedup_key: str
    step_no: int
    channel: str
    attempt: int = 0
    claim: int = 0
    """0 for a receipt."""
    key: str
    outcome: OutcomeKind
    reason: str = ""
    """A short code (`http_503`, `smtp_550`, `timeout`, `resolved`); never a provider's free text about the person."""
    contact_alive: bool = False
    """Of `rejected`: the refusal is about this message (a template that fails, say) and not about the address."""
    provider: str | None = None
    provider_ref: str | None = None
    retry_after_ms: int | None = None
    unknown_policy: UnknownPolicy | None = None
    latency_ms: int | None = None
    at: int


class EventType(StrEnum):
    """The `ce_type`s of `delivery-events`, a public contract."""

    ACCEPTED = "rung.notification.accepted"
    DUPLICATE = "rung.notification.duplicate"
    CONFLICT = "rung.notification.conflict"
    RESOLVED = "rung.notification.resolved"
    TOO_LATE = "rung.notification.too_late"
    EXPIRED = "rung.notification.expired"
    FINISHED = "rung.notification.finished"
    DEAD = "rung.notification.dead"
    ERASED = "rung.notification.erased"
    STEP_CLAIMED = "rung.step.claimed"
    STEP_SENT = "rung.step.sent"
    STEP_REJECTED = "rung.step.rejected"
    STEP_FAILED = "rung.step.failed"
    STEP_UNKNOWN = "rung.step.unknown"
    STEP_SUPPRESSED = "rung.step.suppressed"
    STEP_DEFERRED = "rung.step.deferred"
    STEP_PROMOTED = "rung.step.promoted"
    STEP_DELIVERED = "rung.step.delivered"
    STEP_BOUNCED = "rung.step.bounced"


class PlannedStep(Record, frozen=True, kw_only=True):
    """A step as it was planned when its notification was accepted."""

    step_no: int
    channel: str
    due_at: int


class DeliveryEvent(Record, frozen=True, kw_only=True):
    """One thing that happened to a notification or a step; its type is the `ce_type` header, not in the value."""

    notification_id: UUID
    recipient: str
    kind: str
    dedup_key: str
    step_no: int | None = None
    channel: str | None = None
    provider: str | None = None
    attempt: int | None = None
    key: str | None = None
    reason: str
    detail: str | None = None
    """A provider's or a worker's short code behind the reason, or the resolution's word."""
    at: int
    due_at: int | None = None
    next_due_at: int | None = None
    provider_ref: str | None = None
    latency_ms: int | None = None
    steps: tuple[PlannedStep, ...] | None = None
    """Of `accepted`: the whole plan."""
    depth: int | None = None
    """Of `resolved` and `too_late`: how many steps had left (the escalation depth)."""
    expires_at: int | None = None


EVENT_TYPES = frozenset(EventType)
