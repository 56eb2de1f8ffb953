"""What business services ask for: notifications, resolutions, profiles and erasures."""

from msgspec.structs import replace

from processor.domain.advance import allowed, defer
from processor.domain.derive import attempt_key, body_hash, bounded, fingerprint
from processor.domain.draft import Draft
from processor.domain.ladder_end import RETENTION_MS, depth, end, has_left, last_left
from processor.domain.model import NotifyReceived, RecipientErased, RecipientPut, ResolutionReceived, SetAside
from processor.domain.quiet_hours import validate_profile
from schemas.reasons import DeadReason, Reason
from schemas.records import EventType, Notify, PlannedStep
from schemas.state import EarlyResolution, End, Ladder, Notification, Step, StepState

EARLY_RETENTION_MS = 7 * 86_400_000
"""How long a resolution waits for its notification: as long as the topics keep one that could still come."""


def notify(draft: Draft, event: NotifyReceived) -> Reason:
    """One ladder per dedup key: the first body stands, the same again is ignored, another one is a conflict."""
    if draft.seen_before(event.ce_id):
        return Reason.REDELIVERED
    key = event.notify.dedup_key
    holder = _holder(draft, event.notify)
    if holder is not None:
        return _repeat(draft, event, holder)
    if event.ladder is None or not event.ladder.steps:
        return unknown_kind(draft, event.notify, event.ce_id)
    draft.remember(event.ce_id)
    accept(draft, event.notify, event.ladder)
    early = draft.early.pop(key, None)
    if early is None:
        return Reason.ACCEPTED
    _resolve_open(draft, key, Reason.RESOLVED_EARLY, early.resolution)
    return Reason.RESOLVED_EARLY


def _holder(draft: Draft, request: Notify) -> str | None:
    """The dedup key of the notification that stands where the request would: under its dedup key, or under its id.
    Two notifications with one id would share the keys of their attempts, and providers would drop the second one."""
    if request.dedup_key in draft.notifications:
        return request.dedup_key
    same_id = (k for k, n in draft.notifications.items() if n.notification_id == request.notification_id)
    return next(same_id, None)


def _repeat(draft: Draft, event: NotifyReceived, holder: str) -> Reason:
    draft.remember(event.ce_id)
    first = draft.notifications[holder]
    if holder == event.notify.dedup_key and first.body_hash == body_hash(event.notify):
        draft.emit(EventType.DUPLICATE, holder, first, Reason.DUPLICATE, cause=event.ce_id)
        return Reason.DUPLICATE
    return conflict(draft, event.notify, holder, event.ce_id)


def conflict(draft: Draft, request: Notify, holder: str, cause: str) -> Reason:
    """The first notification stands, and the request is set aside."""
    first = draft.notifications[holder]
    draft.emit(EventType.CONFLICT, holder, first, Reason.CONFLICT, cause=cause)
    detail = f"notification {first.notification_id} stands for this dedup key, with another body"
    if holder != request.dedup_key:
        detail = f"notification {first.notification_id} stands for this id, under another dedup key"
    draft.commands.append(SetAside(reason=DeadReason.CONFLICT, detail=detail))
    return Reason.CONFLICT


def unknown_kind(draft: Draft, request: Notify, cause: str) -> Reason:
    """No ladder, so no notification and no trace of the key: a corrected request may use it."""
    refused = Notification(
        notification_id=request.notification_id,
        kind=request.kind,
        body_hash="",
        order=0,
        accepted_at=draft.now,
        expires_at=draft.now,
        steps=(),
    )
    # The corrected request may have an end of its own, and these are two facts.
    draft.emit(EventType.DEAD, request.dedup_key, refused, Reason.UNKNOWN_KIND, cause=cause)
    detail = f"no ladder for kind {request.kind[:80]!r}; add it to ladders.toml and redrive"
    draft.commands.append(SetAside(reason=DeadReason.UNKNOWN_KIND, detail=detail))
    return Reason.UNKNOWN_KIND


def accept(
    draft: Draft,
    request: Notify,
    ladder: Ladder,
    why: Reason = Reason.ACCEPTED,
    before: tuple[Step, ...] = (),
    redrives: tuple[str, ...] = (),
) -> None:
    """Plan the whole ladder now, so that it can be inspected; quiet hours move a step and never drop it. `before` are
    the steps as they were, of one that is opened again: what has left is not planned."""
    latest = draft.now + ladder.expires_after_ms
    steps = tuple(
        _planned(draft, ladder, number, before[number] if number < len(before) else None)
        for number in range(len(ladder.steps))
    )
    pending = [step for step in steps if step.state is StepState.PENDING]
    accepted = Notification(
        notification_id=request.notification_id,
        kind=request.kind,
        body_hash=body_hash(request),
        order=draft.accepted,
        accepted_at=draft.now,
        expires_at=latest if request.expires_at is None else bounded(request.expires_at, latest),
        steps=steps,
        ladder=ladder,
        data=request.data,
        asked_expires_at=request.expires_at,
        redrives=redrives,
    )
    draft.accepted += 1
    draft.forget_at = None
    draft.notifications[request.dedup_key] = accepted
    draft.emit(
        EventType.ACCEPTED,
        request.dedup_key,
        accepted,
        why,
        next_due_at=pending[0].due_at,
        expires_at=accepted.expires_at,
        steps=tuple(PlannedStep(step_no=s.step_no, channel=s.channel, due_at=s.due_at) for s in pending),
    )
    for step in pending:
        at = draft.now + ladder.steps[step.step_no].after_ms
        if step.due_at > at:
            defer(draft, request.dedup_key, accepted, replace(step, due_at=at), step.due_at)


def _planned(draft: Draft, ladder: Ladder, number: int, before: Step | None) -> Step:
    """A step of a plan from now. Where there was one before, one that has left stays as it is; of another, claims are
    counted on, so that no old one is taken for a new one, and what only the provider of its channel knows is kept."""
    if before is not None and has_left(before):
        return before
    rung = ladder.steps[number]
    due_at = allowed(draft, ladder, draft.now + rung.after_ms)
    if before is not None and before.channel == rung.channel:
        return Step(
            step_no=number,
            channel=rung.channel,
            due_at=due_at,
            claim=before.claim,
            lookup=before.lookup,
            provider=before.provider,
            address_hash=before.address_hash,
        )
    claim = 0 if before is None else before.claim
    return Step(step_no=number, channel=rung.channel, due_at=due_at, claim=claim)


def resolve(draft: Draft, event: ResolutionReceived) -> Reason:
    """Resolved absorbs: before the notification it waits, in the middle it stops, afterwards it is recorded."""
    if draft.seen_before(event.ce_id):
        return Reason.REDELIVERED
    draft.remember(event.ce_id)
    key, word = event.resolve.dedup_key, event.resolve.resolution
    notification = draft.notifications.get(key)
    if notification is None:
        if key in draft.early:
            return Reason.ALREADY_RESOLVED
        draft.early[key] = EarlyResolution(resolution=word, at=draft.now, purge_at=draft.now + EARLY_RETENTION_MS)
        return Reason.REMEMBERED
    if notification.ended is None:
        _resolve_open(draft, key, Reason.RESOLVED, word)
        return Reason.RESOLVED
    if notification.ended in {End.RESOLVED, End.ERASED}:
        return Reason.ALREADY_RESOLVED
    too_late(draft, key, Reason.ALREADY_ENDED, last_left(notification), word)
    draft.notifications[key] = replace(notification, ended=End.RESOLVED)
    return Reason.ALREADY_ENDED


def _resolve_open(draft: Draft, key: str, why: Reason, word: str) -> None:
    notification = draft.notifications[key]
    draft.emit(
        EventType.RESOLVED,
        key,
        notification,
        why,
        step=last_left(notification),
        depth=depth(notification),
        detail=word or None,
    )
    end(draft, key, End.RESOLVED, why)


def too_late(draft: Draft, key: str, why: Reason, step: Step | None, detail: str | None) -> None:
    """Record a resolution that could not stop a step which had already left."""
    notification = draft.notifications[key]
    draft.emit(
        EventType.TOO_LATE,
        key,
        notification,
        why,
        step=step,
        cause=why,
        depth=depth(notification),
        detail=detail,
        key=None if step is None else attempt_key(notification.notification_id, step.step_no),
    )


def put_recipient(draft: Draft, event: RecipientPut) -> Reason:
    """The whole profile is replaced; an address that the provider refused is forgiven once it changes."""
    if draft.seen_before(event.ce_id):
        return Reason.REDELIVERED
    if _superseded(draft, event):
        return Reason.SUPERSEDED
    profile = event.put.profile
    fault = validate_profile(profile)
    if fault is not None:
        draft.commands.append(SetAside(reason=DeadReason.BAD_PROFILE, detail=fault))
        return Reason.BAD_PROFILE
    draft.remember(event.ce_id)
    draft.profile = profile
    draft.profile_at = draft.now
    draft.forget_at = None
    draft.dead_contacts = {
        channel: dead
        for channel, dead in draft.dead_contacts.items()
        if fingerprint(profile.addresses.get(channel, "")) == dead.address_hash
    }
    draft.publish_profile()
    return Reason.PROFILE_UPDATED


def erase_recipient(draft: Draft, event: RecipientErased) -> Reason:
    """Everything pending stops and every personal field goes; ids stay for the retention time, so that a repeat of an
    older record does not bring the person back, and a resolution that waits still wins."""
    if draft.seen_before(event.ce_id):
        return Reason.REDELIVERED
    if _superseded(draft, event):
        return Reason.SUPERSEDED
    draft.remember(event.ce_id)
    for key, notification in list(draft.notifications.items()):
        if notification.ended is None:
            draft.emit(EventType.ERASED, key, notification, Reason.ERASED, depth=depth(notification))
            end(draft, key, End.ERASED, Reason.ERASED)
        for step in draft.notifications[key].steps:
            draft.set_step(key, replace(step, address_hash=None))
    draft.profile = None
    draft.profile_at = draft.now
    draft.dead_contacts = {}
    draft.early = {key: replace(early, resolution="") for key, early in draft.early.items()}
    draft.forget_at = draft.now + RETENTION_MS
    draft.publish_profile()
    return Reason.ERASED


def _superseded(draft: Draft, event: RecipientPut | RecipientErased) -> bool:
    """Whether a record that comes back from the dead letters would undo a later one."""
    since = event.set_aside_at
    if since is None or draft.profile_at is None or draft.profile_at < since:
        return False
    detail = "a later profile change or erasure was applied while this one was set aside"
    draft.commands.append(SetAside(reason=DeadReason.SUPERSEDED, detail=detail))
    return True
