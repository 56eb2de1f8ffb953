"""What goes into a decision and what comes out: events, commands and the decision itself, as frozen tagged unions."""

import msgspec

from schemas.profile import DeadContact, Profile
from schemas.reasons import DeadReason, Reason
from schemas.records import (
    Delivery,
    DeliveryEvent,
    EraseRecipient,
    EventType,
    Notify,
    Outcome,
    PutRecipient,
    Redrive,
    Resolve,
)
from schemas.state import Ladder, RecipientState


class _Tagged(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="tag"):
    """Base of the unions below."""


class NotifyReceived(_Tagged, frozen=True, kw_only=True):
    """A service asks for a notification. `ladder` is the kind's ladder now; None if no such kind is configured."""

    ce_id: str
    notify: Notify
    ladder: Ladder | None


class RedriveReceived(_Tagged, frozen=True, kw_only=True):
    """An operator puts a notification back that ended dead. `ladder` is the kind's ladder now."""

    redrive: Redrive
    ladder: Ladder | None


class RecipientPut(_Tagged, frozen=True, kw_only=True):
    """A recipient's profile changed. `set_aside_at` is given where the record was a dead letter since then."""

    ce_id: str
    put: PutRecipient
    set_aside_at: int | None = None


class RecipientErased(_Tagged, frozen=True, kw_only=True):
    """A recipient is to be forgotten. `set_aside_at` as above."""

    ce_id: str
    erase: EraseRecipient
    set_aside_at: int | None = None


class ResolutionReceived(_Tagged, frozen=True, kw_only=True):
    """The person acted."""

    ce_id: str
    resolve: Resolve


class WokeUp(_Tagged, frozen=True, kw_only=True):
    """A wait of this recipient is over."""

    recipient: str
    due_at: int


class OutcomeReceived(_Tagged, frozen=True, kw_only=True):
    """A worker, or a receipt, says what became of a claim."""

    outcome: Outcome


Event = (
    NotifyReceived | RedriveReceived | RecipientPut | RecipientErased | ResolutionReceived | WokeUp | OutcomeReceived
)


class Emit(_Tagged, frozen=True, kw_only=True):
    """Publish a delivery event. `event_id` is derived, so that a reader can drop repeats."""

    event_id: str
    type: EventType
    event: DeliveryEvent


class Deliver(_Tagged, frozen=True, kw_only=True):
    """Hand a claim to the delivery workers."""

    delivery: Delivery


class WakeAt(_Tagged, frozen=True, kw_only=True):
    """Wake this recipient at `due_at`, which lies in the future."""

    recipient: str
    due_at: int


class PublishProfile(_Tagged, frozen=True, kw_only=True):
    """Publish the profile as applied; None for an erased recipient."""

    recipient: str
    profile: Profile | None
    dead_contacts: dict[str, DeadContact]


class SetAside(_Tagged, frozen=True, kw_only=True):
    """Make a dead letter: of the input of this decision, or of `notify` where that is given."""

    reason: DeadReason
    detail: str
    notify: Notify | None = None
    redrives: int = 0
    """Of `notify`: how often it was put back before."""


Command = Emit | Deliver | WakeAt | PublishProfile | SetAside


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The new state (the old one, the same object, if nothing changed), what to do, and the named reason why.

    `state` None means that nothing is known of the recipient any more and the stored entry goes.
    """

    state: RecipientState | None
    commands: tuple[Command, ...] = ()
    reason: Reason
