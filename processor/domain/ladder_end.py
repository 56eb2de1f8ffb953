"""How a notification ends, and what a step that cannot reach the person does to the next one."""

from msgspec.structs import replace

from processor.domain.draft import Draft
from processor.domain.model import SetAside
from schemas.reasons import DeadReason, Reason
from schemas.records import EventType, Notify
from schemas.state import End, Notification, Step, StepState

RETENTION_MS = 7 * 86_400_000
"""How long an ended notification stays in the state: as long as its topics keep what could repeat it."""

OPEN = frozenset({StepState.PENDING, StepState.CLAIMED})
LEFT = frozenset({StepState.SENT, StepState.HELD})
"""States of a step whose message has left, or may have."""
UNREACHABLE = frozenset({Reason.CONTACT_DEAD, Reason.NO_ADDRESS, Reason.PREFERENCE})
"""Reasons for which the channel is no way to the person: the next step does not wait for its time."""
_KNOWN = {reason.value: reason for reason in Reason}
STOPPED_BY: dict[End, Reason] = {
    End.RESOLVED: Reason.RESOLVED,
    End.EXPIRED: Reason.EXPIRED,
    End.ERASED: Reason.ERASED,
    End.FINISHED: Reason.LADDER_ENDED,
    End.DEAD: Reason.LADDER_ENDED,
}


def has_left(step: Step) -> bool:
    """Whether its message has left or may have; a bounce shows that it did."""
    return step.state in LEFT or step.reason == Reason.BOUNCED


def depth(notification: Notification) -> int:
    """The escalation depth: how many steps have left."""
    return sum(step.state in LEFT for step in notification.steps)


def last_left(notification: Notification) -> Step | None:
    """The last step that has left, by its place in the ladder."""
    left = [step for step in notification.steps if step.state in LEFT]
    return left[-1] if left else None


def end(draft: Draft, dedup_key: str, how: End, why: Reason) -> None:
    """End an open notification: every pending step is suppressed, by name; a claimed one is in a worker's hands, and
    its outcome will still be recorded. Ladder and data leave the state; what remains answers late facts."""
    for step in draft.notifications[dedup_key].steps:
        if step.state is StepState.PENDING:
            suppress(draft, dedup_key, step, why)
    draft.notifications[dedup_key] = replace(
        draft.notifications[dedup_key],
        ended=how,
        ended_at=draft.now,
        purge_at=draft.now + RETENTION_MS,
        ladder=None,
        data={},
    )


def suppress(draft: Draft, dedup_key: str, step: Step, why: Reason, detail: str | None = None) -> None:
    """Conclude a step without sending it."""
    done = replace(step, state=StepState.SUPPRESSED, reason=why, claim_deadline=None, waiting=False)
    draft.set_step(dedup_key, done)
    draft.emit(
        EventType.STEP_SUPPRESSED,
        dedup_key,
        draft.notifications[dedup_key],
        why,
        step=step,
        cause=step.claim,
        due_at=step.due_at,
        detail=detail,
    )


def promote_next(draft: Draft, dedup_key: str, step: Step, why: Reason) -> None:
    """A step that cannot reach the person makes the next one due now, instead of leaving them in silence. A next one
    that has left, or is in a worker's hands, breaks the silence itself, and the rest keeps its time."""
    notification = draft.notifications[dedup_key]
    for later in notification.steps[step.step_no + 1 :]:
        if later.state is StepState.CLAIMED or later.state in LEFT:
            return
        if later.state is StepState.PENDING:
            if later.due_at > draft.now and later.attempts == 0:
                draft.set_step(dedup_key, replace(later, due_at=draft.now))
                draft.emit(
                    EventType.STEP_PROMOTED,
                    dedup_key,
                    notification,
                    Reason.PROMOTED,
                    step=later,
                    # Quiet hours may move it back, and then it may be promoted once more.
                    cause=f"{step.step_no}:{later.due_at}",
                    detail=why,
                    due_at=later.due_at,
                    next_due_at=draft.now,
                )
            return


def end_if_done(draft: Draft, dedup_key: str) -> None:
    """End an open notification whose steps are all concluded."""
    notification = draft.notifications[dedup_key]
    if notification.ended is not None or any(step.state in OPEN for step in notification.steps):
        return
    if depth(notification):
        draft.emit(EventType.FINISHED, dedup_key, notification, Reason.LADDER_ENDED, depth=depth(notification))
        end(draft, dedup_key, End.FINISHED, Reason.LADDER_ENDED)
        return
    # A later release may have written a reason that this one does not know.
    reason = _KNOWN.get(notification.steps[-1].reason or "", Reason.LADDER_ENDED)
    if reason in {Reason.CONSENT_WITHDRAWN, Reason.PREFERENCE}:
        # The person did not want it: an end like any other, and nobody's failure.
        draft.emit(EventType.FINISHED, dedup_key, notification, reason, depth=0)
        end(draft, dedup_key, End.FINISHED, reason)
        return
    draft.emit(EventType.DEAD, dedup_key, notification, reason)
    letter = Notify(
        notification_id=notification.notification_id,
        recipient=draft.recipient,
        kind=notification.kind,
        dedup_key=dedup_key,
        data=notification.data,
        expires_at=notification.asked_expires_at,
    )
    draft.commands.append(
        SetAside(
            reason=DeadReason.UNDELIVERABLE,
            detail=f"last step: {reason}",
            notify=letter,
            redrives=len(notification.redrives),
        )
    )
    end(draft, dedup_key, End.DEAD, reason)
