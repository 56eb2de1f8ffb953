"""What one event says about its step or its notification: the rules that the metrics and the read side share."""

from schemas.reasons import Reason
from schemas.records import DeliveryEvent, EventType
from schemas.state import StepState

ENDS = frozenset({EventType.RESOLVED, EventType.EXPIRED, EventType.FINISHED, EventType.DEAD, EventType.ERASED})
"""Events with which a notification ends."""


def concluded_as(kind: EventType, event: DeliveryEvent) -> StepState | None:
    """How an event concludes its step; None if the step goes on, or was concluded before.

    A failure of a step whose notification has ended is followed by a `suppressed` event, which concludes it.
    """
    match kind:
        case EventType.STEP_SENT:
            return StepState.SENT
        case EventType.STEP_REJECTED:
            return StepState.REJECTED
        case EventType.STEP_SUPPRESSED:
            return StepState.SUPPRESSED
        case EventType.STEP_FAILED if event.reason == Reason.ATTEMPTS_EXHAUSTED:
            return StepState.FAILED
        case EventType.STEP_UNKNOWN if event.next_due_at is None:
            return StepState.HELD
        case _:
            return None


def receipt(kind: EventType) -> str | None:
    """What a receipt said about a message that had left: `delivered` or `bounced`."""
    match kind:
        case EventType.STEP_DELIVERED:
            return "delivered"
        case EventType.STEP_BOUNCED:
            return "bounced"
        case _:
            return None


def depth_of(kind: EventType, event: DeliveryEvent) -> int | None:
    """The escalation depth at the moment the person acted; once per notification.

    `too_late` also names the call that was in flight when something else had ended the ladder; that is no second act.
    """
    acted = kind is EventType.RESOLVED or (kind is EventType.TOO_LATE and event.reason == Reason.ALREADY_ENDED)
    return event.depth or 0 if acted else None


def begins(kind: EventType) -> bool:
    """Whether a notification begins with this event; what stood before under the same id is another ladder."""
    return kind is EventType.ACCEPTED


def ends(kind: EventType, event: DeliveryEvent) -> bool:
    """Whether a notification ends with this event. A request of an unknown kind never was one."""
    return kind in ENDS and event.reason != Reason.UNKNOWN_KIND
