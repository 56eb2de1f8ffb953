"""What the journal's events add up to: the standing of one notification and its steps. Pure."""

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from relay.journal.outcomes import begins, concluded_as, ends, receipt
from schemas.reasons import Reason
from schemas.records import DeliveryEvent, EventType
from schemas.state import End, StepState


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """One event as the journal holds it, with its type beside it."""

    type: EventType
    event: DeliveryEvent


class StepStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where one step stands. Steps are counted from 0; times are milliseconds since the epoch, UTC."""

    step_no: int
    channel: str
    state: StepState = StepState.PENDING
    planned_at: int | None = None
    """When it was to be due, as planned at acceptance."""
    due_at: int | None = None
    """When it was, or is, due by now."""
    attempts: int = 0
    key: str | None = None
    """What the provider sees as idempotency key, the same for each attempt."""
    provider: str | None = None
    provider_ref: str | None = None
    reason: str | None = None
    """Of the last decision about it."""
    detail: str | None = None
    receipt: str | None = None
    """`delivered` or `bounced`, once the provider said so."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Where one notification stands. Times are milliseconds since the epoch, UTC."""

    notification_id: UUID
    recipient: str
    kind: str
    dedup_key: str
    status: str
    """`open`, or how it ended (`schemas.state.End`)."""
    accepted_at: int | None = None
    """None where the journal does not hold its beginning any more, or where it was never accepted."""
    expires_at: int | None = None
    ended_at: int | None = None
    reason: str | None = None
    """Why it ended."""
    resolution: str | None = None
    """What the person did, in the business's words."""
    resolved_late_at: int | None = None
    """When the person acted after the ladder had ended by itself."""
    depth: int | None = None
    """How many steps had left when it ended, or when the person acted."""
    next_due_at: int | None = None
    """The earliest time at which a step is due."""
    last_event_at: int
    duplicates: int = 0
    conflicts: int = 0
    steps: tuple[StepStatus, ...] = ()


WAITS = frozenset({EventType.STEP_DEFERRED, EventType.STEP_PROMOTED})
"""Events after which a step waits for its time, whatever it did before."""
NO_CALL = frozenset({Reason.UNCLAIMED.value, "before_call"})
"""Details of `suppressed` that say that the last claim came to no call."""


def fold(events: Sequence[Happened]) -> Status | None:
    """The standing after these events of one notification, in their order; None without any."""
    if not events:
        return None
    status = _blank(events[0])
    for happened in events:
        status = _apply(status, happened)
    return replace(status, next_due_at=_next_due(status))


def _blank(first: Happened) -> Status:
    e = first.event
    return Status(
        notification_id=e.notification_id,
        recipient=e.recipient,
        kind=e.kind,
        dedup_key=e.dedup_key,
        status="open",
        last_event_at=e.at,
    )


def _apply(status: Status, happened: Happened) -> Status:
    kind, e = happened.type, happened.event
    if begins(kind):
        status = _accepted(happened)
    elif ends(kind, e):
        end = End(kind.value.rsplit(".", 1)[1])
        resolution = e.detail if kind is EventType.RESOLVED else status.resolution
        status = replace(status, status=end.value, ended_at=e.at, reason=e.reason, depth=e.depth, resolution=resolution)
    elif kind is EventType.DEAD:
        status = replace(status, status=End.DEAD.value, ended_at=e.at, reason=e.reason)
    elif kind is EventType.TOO_LATE:
        if e.reason == Reason.ALREADY_ENDED:
            status = replace(status, resolved_late_at=e.at, resolution=e.detail)
        status = replace(status, depth=e.depth)
    elif kind is EventType.DUPLICATE:
        status = replace(status, duplicates=status.duplicates + 1)
    elif kind is EventType.CONFLICT:
        status = replace(status, conflicts=status.conflicts + 1)
    elif e.step_no is not None:
        status = _with_step(status, _step_after(_step(status, e), kind, e))
    return replace(status, last_event_at=e.at)


def _accepted(happened: Happened) -> Status:
    e = happened.event
    steps = tuple(
        StepStatus(step_no=s.step_no, channel=s.channel, planned_at=s.due_at, due_at=s.due_at) for s in e.steps or ()
    )
    return replace(_blank(happened), accepted_at=e.at, expires_at=e.expires_at, steps=steps)


def _step(status: Status, e: DeliveryEvent) -> StepStatus:
    for step in status.steps:
        if step.step_no == e.step_no:
            return step
    return StepStatus(step_no=e.step_no or 0, channel=e.channel or "")


def _with_step(status: Status, step: StepStatus) -> Status:
    others = (s for s in status.steps if s.step_no != step.step_no)
    return replace(status, steps=tuple(sorted((*others, step), key=lambda s: s.step_no)))


def _step_after(step: StepStatus, kind: EventType, e: DeliveryEvent) -> StepStatus:
    step = replace(
        step,
        key=e.key or step.key,
        provider=e.provider or step.provider,
        provider_ref=e.provider_ref or step.provider_ref,
        reason=e.reason,
        detail=e.detail,
    )
    concluded = concluded_as(kind, e)
    if concluded is not None:
        return replace(step, state=concluded, attempts=step.attempts - (e.detail in NO_CALL and step.attempts > 0))
    if (name := receipt(kind)) is not None:
        state = StepState.SENT if kind is EventType.STEP_DELIVERED else StepState.REJECTED
        return replace(step, state=state, receipt=name)
    if kind is EventType.STEP_CLAIMED:
        return replace(
            step, state=StepState.CLAIMED, attempts=e.attempt or step.attempts, due_at=e.due_at or step.due_at
        )
    if kind in WAITS or e.next_due_at is not None:
        return replace(step, state=StepState.PENDING, due_at=e.next_due_at or e.due_at or step.due_at)
    return step


def _next_due(status: Status) -> int | None:
    if status.status != "open":
        return None
    return min(_open_dues(status.steps), default=None)


def _open_dues(steps: Iterable[StepStatus]) -> Iterable[int]:
    return (s.due_at for s in steps if s.state is StepState.PENDING and s.due_at is not None)
