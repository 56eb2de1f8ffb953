"""Bring a recipient up to `now`: everything whose time has come, in one fixed order, and the next wake-up.

It runs in every decision, whatever the event was. So a wake-up carries no meaning of its own: one that is late,
repeated or stale changes nothing, and a recipient whose wake-up was lost is put right by the next event.
"""

from msgspec.structs import replace

from processor.domain.derive import attempt_key, fingerprint
from processor.domain.draft import Draft
from processor.domain.ladder_end import OPEN, STOPPED_BY, UNREACHABLE, end, end_if_done, promote_next, suppress
from processor.domain.model import Deliver, WakeAt
from processor.domain.quiet_hours import shift
from schemas.reasons import Reason
from schemas.records import Delivery, EventType
from schemas.state import End, Ladder, Notification, Step, StepState
from schemas.topics import CLAIM_DEADLINE_MS, CLAIM_GRACE_MS

# Python 3.11 takes ten times as long to name a member of an enumeration; this module looks at every step there is.
_PENDING, _CLAIMED = StepState.PENDING, StepState.CLAIMED
_AGAIN = frozenset({Reason.CLAIM_LOST, Reason.UNCLAIMED})
"""Reasons for which a claimed step was made pending again."""


def advance(draft: Draft) -> bool:
    """Do all that is due; True if a step was claimed. Order: forget, expire, take back lost claims, claim."""
    now = draft.now
    soonest = min(_moments(draft), default=None)
    if soonest is None or soonest > now:
        # As it is for most events: one look at the moments tells that nothing below would find anything.
        _arm(draft, soonest)
        return False
    _purge(draft)
    for key, notification in _open(draft):
        if notification.expires_at <= now:
            draft.emit(EventType.EXPIRED, key, notification, Reason.EXPIRED)
            end(draft, key, End.EXPIRED, Reason.EXPIRED)
    _take_back_lost_claims(draft)
    claimed = _decide_due(draft)
    _arm(draft, min([moment for moment in _moments(draft) if moment > now], default=None))
    return claimed


def _purge(draft: Draft) -> None:
    now = draft.now
    draft.notifications = {k: n for k, n in draft.notifications.items() if n.purge_at is None or n.purge_at > now}
    draft.early = {k: e for k, e in draft.early.items() if e.purge_at > now}
    if draft.forget_at is not None and draft.forget_at <= now:
        draft.forget_at = None


def _open(draft: Draft) -> list[tuple[str, Notification]]:
    """Open notifications in their order of acceptance, as they are now."""
    found = [(key, notification) for key, notification in draft.notifications.items() if notification.ended is None]
    if len(found) > 1:
        found.sort(key=_order)
    return found


def _order(item: tuple[str, Notification]) -> int:
    return item[1].order


def _take_back_lost_claims(draft: Draft) -> None:
    """A claim without an outcome: the worker vanished. The step is due again with the same key and the same attempt,
    since nothing shows that the attempt was made; of a notification that has ended, it is concluded."""
    for key, notification in list(draft.notifications.items()):
        for step in notification.steps:
            lost_at = _lost_at(step)
            if lost_at is None or lost_at > draft.now:
                continue
            if notification.ended is not None:
                suppress(draft, key, step, STOPPED_BY[notification.ended], detail=Reason.CLAIM_LOST)
            else:
                draft.set_step(key, reopened(step, draft.now, Reason.CLAIM_LOST))


def reopened(step: Step, due_at: int, why: Reason) -> Step:
    """A claimed step made pending again without its attempt having counted."""
    return replace(
        step,
        state=StepState.PENDING,
        attempts=step.attempts - 1,
        due_at=due_at,
        claim_deadline=None,
        reason=why,
    )


def _lost_at(step: Step) -> int | None:
    if step.state is not _CLAIMED or step.claim_deadline is None:
        return None
    return step.claim_deadline + CLAIM_GRACE_MS


def _decide_due(draft: Draft) -> bool:
    """Decide every step that is due, the earliest accepted notification first: first attempts that are due together
    start in the order of acceptance, however their wake-ups arrived. One pass is enough, since a decision changes
    nothing for an earlier notification. True if a step was claimed."""
    claimed = False
    begun: set[str] = set()
    for key, _ in _open(draft):
        while (step := _due_step(draft, key, begun)) is not None:
            claimed |= _decide_step(draft, key, draft.notifications[key], step)
        begun.update(s.channel for s in draft.notifications[key].steps if s.state in OPEN and s.claim > 0)
    return claimed


def _due_step(draft: Draft, key: str, begun: set[str]) -> Step | None:
    """The next step of a notification that is due and not held back. With strict ordering, what holds it back is a
    step of an earlier notification on this channel that has `begun` and is not concluded."""
    notification = draft.notifications[key]
    strict = notification.ladder is not None and notification.ladder.ordering == "strict"
    for step in notification.steps:
        if step.state is not _PENDING or step.due_at > draft.now:
            continue
        if not (strict and step.attempts == 0 and step.channel in begun):
            return step
        if not step.waiting:
            draft.set_step(key, replace(step, waiting=True))
            draft.emit(
                EventType.STEP_DEFERRED,
                key,
                notification,
                Reason.WAITING_FOR_ORDER,
                step=step,
                # Between two waits it may have been moved by quiet hours, or claimed and taken back.
                cause=f"order:{step.due_at}:{step.claim}",
                due_at=step.due_at,
            )
    return None


def _decide_step(draft: Draft, key: str, notification: Notification, step: Step) -> bool:
    """Decide one due step: the stop conditions once more, then quiet hours, then the claim."""
    ladder = notification.ladder
    if ladder is None:  # cannot be for an open notification; total all the same
        suppress(draft, key, step, Reason.LADDER_ENDED)
        end_if_done(draft, key)
        return False
    stop = _stop_reason(draft, notification, step)
    if stop is not None:
        suppress(draft, key, step, stop)
        if stop in UNREACHABLE:
            promote_next(draft, key, step, stop)
        end_if_done(draft, key)
        return False
    allowed_at = allowed(draft, ladder, draft.now)
    if allowed_at > draft.now:
        draft.set_step(key, replace(step, due_at=allowed_at, waiting=False))
        defer(draft, key, notification, step, allowed_at)
        return False
    _claim(draft, key, notification, ladder, step)
    return True


def allowed(draft: Draft, ladder: Ladder, at: int) -> int:
    """`at`, or the end of the person's quiet hours if it lies in them and the kind respects them."""
    profile = draft.profile
    if ladder.quiet_hours == "ignore" or profile is None or profile.quiet_hours is None:
        return at
    return shift(at, profile.quiet_hours, profile.time_zone)


def defer(
    draft: Draft, key: str, notification: Notification, step: Step, to: int, why: Reason = Reason.QUIET_HOURS
) -> None:
    """Say that a step was moved from the moment at which it was due to a later one."""
    draft.emit(
        EventType.STEP_DEFERRED,
        key,
        notification,
        why,
        step=step,
        # One end of quiet hours may move a step twice: as planned, and again once it was promoted.
        cause=f"{step.due_at}:{step.claim}:{to}",
        due_at=step.due_at,
        next_due_at=to,
    )


def _stop_reason(draft: Draft, notification: Notification, step: Step) -> Reason | None:
    """The stop conditions that belong to the recipient; resolution and expiry have ended the notification before."""
    profile = draft.profile
    if profile is not None and profile.consent.get(notification.kind) is False:
        return Reason.CONSENT_WITHDRAWN
    if profile is not None and profile.preferences.get(notification.kind, {}).get(step.channel) is False:
        return Reason.PREFERENCE
    if step.channel in draft.dead_contacts:
        return Reason.CONTACT_DEAD
    if profile is None or not profile.addresses.get(step.channel):
        return Reason.NO_ADDRESS
    return None


def _claim(draft: Draft, key: str, notification: Notification, ladder: Ladder, step: Step) -> None:
    profile = draft.profile
    assert profile is not None  # noqa: S101 - the stop conditions have seen to it
    address = profile.addresses[step.channel]
    again = step.reason if step.reason is not None and step.reason in _AGAIN else None
    claimed = replace(
        step,
        state=StepState.CLAIMED,
        attempts=step.attempts + 1,
        claim=step.claim + 1,
        claim_deadline=draft.now + CLAIM_DEADLINE_MS,
        address_hash=fingerprint(address),
        reason=None,
        waiting=False,
    )
    draft.set_step(key, claimed)
    name = attempt_key(notification.notification_id, step.step_no)
    draft.emit(
        EventType.STEP_CLAIMED,
        key,
        notification,
        Reason(again) if again else Reason.DUE,
        step=step,
        cause=claimed.claim,
        attempt=claimed.attempts,
        key=name,
        due_at=step.due_at,
    )
    draft.commands.append(
        Deliver(
            delivery=Delivery(
                notification_id=notification.notification_id,
                recipient=draft.recipient,
                kind=notification.kind,
                dedup_key=key,
                step_no=step.step_no,
                channel=step.channel,
                address=address,
                template=ladder.steps[step.step_no].template,
                data=notification.data,
                locale=profile.locale,
                attempt=claimed.attempts,
                claim=claimed.claim,
                key=name,
                claimed_at=draft.now,
                claim_deadline=draft.now + CLAIM_DEADLINE_MS,
                due_at=step.due_at,
                expires_at=notification.expires_at,
                lookup=step.lookup,
                provider=step.provider,
            )
        )
    )


def _arm(draft: Draft, soonest: int | None) -> None:
    """Ask for a wake-up at the next moment that matters, unless an earlier one is already outstanding."""
    if soonest is None:
        return
    if draft.wake_at is None or draft.wake_at <= draft.now or soonest < draft.wake_at:
        draft.wake_at = soonest
        draft.commands.append(WakeAt(recipient=draft.recipient, due_at=soonest))


def _moments(draft: Draft) -> list[int]:
    """All moments at which something is to be done."""
    moments = [early.purge_at for early in draft.early.values()]
    if draft.forget_at is not None:
        moments.append(draft.forget_at)
    for notification in draft.notifications.values():
        if notification.purge_at is not None:
            moments.append(notification.purge_at)
        if notification.ended is None:
            moments.append(notification.expires_at)
        for step in notification.steps:
            if step.state is _PENDING:
                moments.append(step.due_at)
            elif step.state is _CLAIMED and step.claim_deadline is not None:
                moments.append(step.claim_deadline + CLAIM_GRACE_MS)
    return moments
