"""A small decision for the engines' contract suite: it counts, and does what the notification's data tell it to.

Every event of a recipient adds one to a counter in the state and publishes an event that carries the new count in
`attempt`. So a record that was lost, processed twice or decided on an older state shows in the outputs alone.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from processor.domain.decide import recipient_of
from processor.domain.model import (
    Command,
    Decision,
    Deliver,
    Emit,
    Event,
    NotifyReceived,
    OutcomeReceived,
    PublishProfile,
    RecipientErased,
    RecipientPut,
    ResolutionReceived,
    SetAside,
    WakeAt,
    WokeUp,
)
from schemas.reasons import DeadReason, Reason
from schemas.records import Delivery, DeliveryEvent, EventType
from schemas.state import RecipientState

NOBODY = UUID(int=0)


def count(state: RecipientState | None, event: Event, now: int) -> Decision:
    """The decision of the contract suite."""
    recipient = recipient_of(event)
    before = state or RecipientState(recipient=recipient)
    after: RecipientState | None = msgspec.structs.replace(before, accepted=before.accepted + 1)
    commands: list[Command] = []
    match event:
        case NotifyReceived(notify=notify, ladder=ladder):
            data = notify.data
            if data.get("crash"):
                raise RuntimeError("the data asked for a crash")
            if data.get("set_aside"):
                return Decision(
                    state=state,
                    commands=(SetAside(reason=DeadReason.CONFLICT, detail="asked for"),),
                    reason=Reason.CONFLICT,
                )
            kind = notify.kind if ladder is not None else f"unknown {notify.kind}"
            event_id, emitted = event.ce_id, EventType.ACCEPTED
            commands += _asked_for(event, now)
            dedup_key, reason = notify.dedup_key, Reason.ACCEPTED
        case ResolutionReceived(resolve=resolve):
            event_id, emitted, kind = event.ce_id, EventType.RESOLVED, ""
            dedup_key, reason = resolve.dedup_key, Reason.RESOLVED
        case RecipientPut(put=put):
            event_id, emitted, kind, dedup_key = event.ce_id, EventType.FINISHED, "", ""
            reason = Reason.PROFILE_UPDATED
            commands.append(PublishProfile(recipient=recipient, profile=put.profile, dead_contacts={}))
        case RecipientErased():
            event_id, emitted, kind, dedup_key = event.ce_id, EventType.ERASED, "", ""
            reason = Reason.ERASED
            commands.append(PublishProfile(recipient=recipient, profile=None, dead_contacts={}))
            after = None
        case WokeUp(due_at=due_at):
            event_id, emitted, kind, dedup_key = str(due_at), EventType.STEP_DEFERRED, "", ""
            reason = Reason.DUE
        case OutcomeReceived(outcome=outcome):
            event_id, emitted, kind = outcome.key, EventType.STEP_SENT, ""
            dedup_key, reason = outcome.dedup_key, Reason.SENT
    delivery_event = DeliveryEvent(
        notification_id=NOBODY,
        recipient=recipient,
        kind=kind,
        dedup_key=dedup_key,
        reason=reason,
        attempt=before.accepted + 1,
        at=now,
    )
    commands.insert(0, Emit(event_id=event_id, type=emitted, event=delivery_event))
    return Decision(state=after, commands=tuple(commands), reason=reason)


def _asked_for(event: NotifyReceived, now: int) -> list[Command]:
    data: dict[str, Any] = event.notify.data
    commands: list[Command] = []
    if "wake_in_ms" in data:
        commands.append(WakeAt(recipient=event.notify.recipient, due_at=now + data["wake_in_ms"]))
    if data.get("deliver"):
        commands.append(Deliver(delivery=_delivery(event, now)))
    return commands


def _delivery(event: NotifyReceived, now: int) -> Delivery:
    notify = event.notify
    return Delivery(
        notification_id=notify.notification_id,
        recipient=notify.recipient,
        kind=notify.kind,
        dedup_key=notify.dedup_key,
        step_no=0,
        channel="email",
        address="someone@example.test",
        template=notify.kind,
        attempt=1,
        claim=1,
        key=f"{notify.notification_id}:0",
        claimed_at=now,
        claim_deadline=now + 30_000,
        due_at=now,
        expires_at=now + 60_000,
    )
