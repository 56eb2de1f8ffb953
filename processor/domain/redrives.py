"""A notification that ended dead is opened again by an operator, unless the person has acted or nothing is left."""

from processor.domain.derive import body_hash, fingerprint
from processor.domain.draft import Draft
from processor.domain.ladder_end import STOPPED_BY, depth, has_left
from processor.domain.model import RedriveReceived, SetAside
from processor.domain.requests import accept, conflict, unknown_kind
from schemas.reasons import DeadReason, Reason
from schemas.records import EventType, Notify, Redrive
from schemas.state import End, Ladder, Notification

REDRIVES_KEPT = 16
"""How many redrives of one notification are remembered; each is an act of an operator, and `rung redrive` allows three
unless it is told otherwise."""


def redrive(draft: Draft, event: RedriveReceived) -> Reason:
    """Open the ladder again, once per redrive id. Id and attempt keys stay, what has left is never sent again, the rest
    is planned from now. Whatever ended it since wins, and consent is looked at when each step is due, as always."""
    request, cause = _request(event.redrive), str(event.redrive.redrive_id)
    key, mark = request.dedup_key, fingerprint(cause)
    first = draft.notifications.get(key)
    if first is None:
        detail = "nothing is known of this notification any more, so neither whether the person has acted"
        draft.commands.append(SetAside(reason=DeadReason.FORGOTTEN, detail=detail))
        return Reason.FORGOTTEN
    if mark in first.redrives or draft.seen_before(cause):
        return Reason.REDELIVERED
    if first.notification_id != request.notification_id or first.body_hash != body_hash(request):
        draft.remember(cause)
        return conflict(draft, request, key, cause)
    if first.ended is not End.DEAD:
        return _refuse(draft, key, cause, Reason.DUPLICATE if first.ended is None else STOPPED_BY[first.ended])
    if request.expires_at is not None and request.expires_at <= draft.now:
        return _refuse(draft, key, cause, Reason.EXPIRED)
    if event.ladder is None or not event.ladder.steps:
        return unknown_kind(draft, request, cause)
    if not _has_work(first, event.ladder):
        return _refuse(draft, key, cause, Reason.LADDER_ENDED)
    accept(draft, request, event.ladder, Reason.REDRIVEN, first.steps, (*first.redrives, mark)[-REDRIVES_KEPT:])
    return Reason.REDRIVEN


def _has_work(first: Notification, ladder: Ladder) -> bool:
    """Whether a step is left to send: a receipt may have shown that a message had left after all, and then a ladder
    that stops there has reached its end. A ladder that has become shorter than what has left has too."""
    if ladder.stop_on != "resolution" and depth(first):
        return False
    left = [step.step_no for step in first.steps if has_left(step)]
    return len(left) < len(ladder.steps) and max(left, default=0) < len(ladder.steps)


def _refuse(draft: Draft, key: str, cause: str, why: Reason) -> Reason:
    """The notification stands as it is; the event says why."""
    draft.remember(cause)
    draft.emit(EventType.DUPLICATE, key, draft.notifications[key], why, cause=cause)
    return why


def _request(redrive: Redrive) -> Notify:
    return Notify(
        notification_id=redrive.notification_id,
        recipient=redrive.recipient,
        kind=redrive.kind,
        dedup_key=redrive.dedup_key,
        data=redrive.data,
        expires_at=redrive.expires_at,
    )
