"""A decision in the making: the state as it is being changed, and the commands collected on the way."""

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from processor.domain.derive import event_id, fingerprint
from processor.domain.model import Command, Decision, Emit, PublishProfile
from schemas.profile import DeadContact, Profile
from schemas.reasons import Reason
from schemas.records import DeliveryEvent, EventType
from schemas.state import EarlyResolution, Notification, RecipientState, Step

SEEN_LIMIT = 64
"""How many inputs of one recipient are remembered against the relay's repeats, which cover the rows between the
relay's cursor and its crash. A recipient with more than this in that window may see an old profile for a moment."""


@dataclass(slots=True)
class Draft:
    """The mutable working copy of one decision; it lives only inside `decide`."""

    now: int
    recipient: str
    profile: Profile | None = None
    dead_contacts: dict[str, DeadContact] = field(default_factory=dict)
    notifications: dict[str, Notification] = field(default_factory=dict)
    early: dict[str, EarlyResolution] = field(default_factory=dict)
    seen: tuple[str, ...] = ()
    accepted: int = 0
    wake_at: int | None = None
    forget_at: int | None = None
    profile_at: int | None = None
    commands: list[Command] = field(default_factory=list)

    @classmethod
    def of(cls, state: RecipientState | None, recipient: str, now: int) -> "Draft":
        """Open a draft on a stored state, or on a recipient of whom nothing is known."""
        if state is None:
            return cls(now, recipient)
        return cls(
            now,
            recipient,
            state.profile,
            dict(state.dead_contacts),
            dict(state.notifications),
            dict(state.early),
            state.seen,
            state.accepted,
            state.wake_at,
            state.forget_at,
            state.profile_at,
        )

    def decision(self, before: RecipientState | None, reason: Reason) -> Decision:
        """Close the draft. An unchanged state stays the same object, so that an engine need not write it."""
        state: RecipientState | None = RecipientState(
            recipient=self.recipient,
            profile=self.profile,
            dead_contacts=self.dead_contacts,
            notifications=self.notifications,
            early=self.early,
            seen=self.seen,
            accepted=self.accepted,
            wake_at=self.wake_at,
            profile_at=self.profile_at,
            forget_at=self.forget_at,
        )
        if self.profile is None and not self.notifications and not self.early and self.forget_at is None:
            state = None
        elif state == before:
            state = before
        return Decision(state=state, commands=tuple(self.commands), reason=reason)

    def seen_before(self, ce_id: str) -> bool:
        """Whether the relay has published this input already."""
        return fingerprint(ce_id) in self.seen

    def remember(self, ce_id: str) -> None:
        """Remember an input from the outbox. A refused one is not remembered: corrected or redriven, it may come
        again."""
        self.seen = (*self.seen, fingerprint(ce_id))[-SEEN_LIMIT:]

    def set_step(self, dedup_key: str, step: Step) -> None:
        """Put a changed step in its place."""
        notification = self.notifications[dedup_key]
        number = step.step_no
        steps = tuple([step if s.step_no == number else s for s in notification.steps])
        self.notifications[dedup_key] = replace(notification, steps=steps)

    def publish_profile(self) -> None:
        """Tell the readers of `recipients` what is known now."""
        self.commands.append(
            PublishProfile(recipient=self.recipient, profile=self.profile, dead_contacts=dict(self.dead_contacts))
        )

    def emit(
        self,
        kind: EventType,
        dedup_key: str,
        notification: Notification,
        reason: Reason,
        *,
        step: Step | None = None,
        cause: object = "",
        **fields: Any,
    ) -> None:
        """Publish a delivery event. `fields` are those that not every event has; `cause` keeps apart two events of
        one type and step."""
        number = None if step is None else step.step_no
        event = DeliveryEvent(
            notification_id=notification.notification_id,
            recipient=self.recipient,
            kind=notification.kind,
            dedup_key=dedup_key,
            step_no=number,
            channel=None if step is None else step.channel,
            reason=reason,
            at=self.now,
            **fields,
        )
        identity = event_id(notification.notification_id, notification.order, kind, number, cause)
        self.commands.append(Emit(event_id=identity, type=kind, event=event))
