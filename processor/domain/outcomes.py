"""What workers and receipts report, and what follows from it.

A fact about the message (sent, a receipt) counts whichever claim it belongs to. A report about a claim (failed,
unknown, unclaimed, suppressed) counts only for the claim that is current: an older one has been decided anew. A refusal
counts for the last claim, current or taken back: an older one may have gone to another address.
"""

from typing import assert_never

from msgspec.structs import replace

from processor.domain.advance import defer, reopened
from processor.domain.derive import attempt_key, backoff_ms, bounded, fingerprint
from processor.domain.draft import Draft
from processor.domain.durations import LIMIT_MS
from processor.domain.ladder_end import OPEN, STOPPED_BY, depth, end, end_if_done, promote_next, suppress
from processor.domain.model import OutcomeReceived
from processor.domain.requests import too_late
from schemas.profile import DeadContact
from schemas.reasons import Reason
from schemas.records import EventType, Outcome, OutcomeKind, UnknownPolicy
from schemas.state import End, Notification, Step, StepState

_WORKER_STOPS = {
    reason.value: reason for reason in (Reason.RESOLVED, Reason.CONSENT_WITHDRAWN, Reason.ERASED, Reason.EXPIRED)
}
_COUNT_LIMIT = 2**31 - 1
"""The most that a count from outside is published as, so that every reader can hold it."""
_REST_MS = 5_000
"""How long a step rests once it was handed back before. Workers that are overloaded, or whose clock is ahead of ours by
a claim's deadline, would otherwise be given the same step in a circle, as fast as Kafka is."""


def outcome(draft: Draft, event: OutcomeReceived) -> Reason:
    """Record an outcome on its step."""
    report = event.outcome
    notification = draft.notifications.get(report.dedup_key)
    if notification is None or notification.notification_id != report.notification_id:
        return Reason.STALE_OUTCOME
    if not 0 <= report.step_no < len(notification.steps):
        return Reason.STALE_OUTCOME
    step = notification.steps[report.step_no]
    match report.outcome:
        case OutcomeKind.SENT:
            return _sent(draft, notification, step, report)
        case OutcomeKind.REJECTED:
            return _rejected(draft, notification, step, report)
        case OutcomeKind.DELIVERED:
            return _delivered(draft, notification, step, report)
        case OutcomeKind.BOUNCED:
            return _bounced(draft, notification, step, report)
        case OutcomeKind.FAILED | OutcomeKind.UNKNOWN | OutcomeKind.UNCLAIMED | OutcomeKind.SUPPRESSED:
            if step.state is not StepState.CLAIMED or step.claim != report.claim:
                return Reason.STALE_OUTCOME
            return _of_current_claim(draft, notification, step, report)
        case _:
            assert_never(report.outcome)


def _of_current_claim(draft: Draft, notification: Notification, step: Step, report: Outcome) -> Reason:
    match report.outcome:
        case OutcomeKind.FAILED:
            return _failed(draft, notification, step, report)
        case OutcomeKind.UNKNOWN:
            return _unknown(draft, notification, step, report)
        case OutcomeKind.UNCLAIMED:
            return _unclaimed(draft, notification, step, report)
        case _:
            return _suppressed(draft, notification, step, report)


def _emit(
    draft: Draft, kind: EventType, step: Step, report: Outcome, reason: Reason, next_due_at: int | None = None
) -> None:
    """An event about what a provider answered."""
    notification = draft.notifications[report.dedup_key]
    draft.emit(
        kind,
        report.dedup_key,
        notification,
        reason,
        step=step,
        cause=report.claim,
        provider=report.provider,
        attempt=bounded(report.attempt, _COUNT_LIMIT) or None,
        key=attempt_key(notification.notification_id, step.step_no),
        detail=report.reason or None,
        due_at=step.due_at,
        next_due_at=next_due_at,
        provider_ref=report.provider_ref,
        latency_ms=None if report.latency_ms is None else bounded(report.latency_ms, _COUNT_LIMIT),
    )


def _sent(draft: Draft, notification: Notification, step: Step, report: Outcome) -> Reason:
    if step.state is StepState.SENT or step.reason == Reason.BOUNCED:
        # A receipt was faster than the worker, and has said so already.
        return Reason.STALE_OUTCOME
    key = report.dedup_key
    _left(draft, notification, step, report)
    if notification.ended is not None:
        return Reason.IN_FLIGHT
    if notification.ladder is not None and notification.ladder.stop_on == "sent":
        _finish(draft, key, Reason.STOPPED_BY_SENT)
    else:
        end_if_done(draft, key)
    return Reason.SENT


def _left(draft: Draft, notification: Notification, step: Step, report: Outcome) -> None:
    """The message has left, once: by the worker's word, or by a receipt that came before it."""
    key = report.dedup_key
    draft.set_step(key, replace(step, state=StepState.SENT, claim_deadline=None, reason=None, waiting=False))
    _emit(draft, EventType.STEP_SENT, step, report, Reason.SENT)
    if notification.ended not in {None, End.DEAD}:
        too_late(draft, key, Reason.IN_FLIGHT, step, None)


def _finish(draft: Draft, key: str, why: Reason) -> None:
    notification = draft.notifications[key]
    draft.emit(EventType.FINISHED, key, notification, why, depth=depth(notification))
    end(draft, key, End.FINISHED, why)


def _rejected(draft: Draft, notification: Notification, step: Step, report: Outcome) -> Reason:
    # A step that was given up when its claim was lost is told late, and the address is dead all the same.
    refusable = step.state in OPEN or step.state is StepState.SUPPRESSED
    if not refusable or report.claim != step.claim or step.claim == 0:
        return Reason.STALE_OUTCOME
    key = report.dedup_key
    draft.set_step(
        key,
        replace(step, state=StepState.REJECTED, claim_deadline=None, reason=Reason.REJECTED, waiting=False),
    )
    _emit(draft, EventType.STEP_REJECTED, step, report, Reason.REJECTED)
    if not report.contact_alive:
        _contact_died(draft, step, report)
    if notification.ended is None:
        promote_next(draft, key, step, Reason.REJECTED)
        end_if_done(draft, key)
    return Reason.REJECTED


def _contact_died(draft: Draft, step: Step, report: Outcome) -> None:
    """A permanent fact about the address of the claim, which may not be the address of today."""
    if draft.profile is None or step.address_hash is None:
        return
    if fingerprint(draft.profile.addresses.get(step.channel, "")) == step.address_hash:
        draft.dead_contacts[step.channel] = DeadContact(
            address_hash=step.address_hash, reason=report.reason or Reason.REJECTED, at=draft.now
        )
        draft.publish_profile()


def _failed(draft: Draft, notification: Notification, step: Step, report: Outcome) -> Reason:
    key = report.dedup_key
    if notification.ended is not None:
        _emit(draft, EventType.STEP_FAILED, step, report, STOPPED_BY[notification.ended])
        suppress(draft, key, step, STOPPED_BY[notification.ended], detail=report.reason or None)
        return STOPPED_BY[notification.ended]
    retry = notification.ladder.retry if notification.ladder else None
    if retry is None or step.attempts >= retry.max_attempts:
        _conclude(draft, key, step, StepState.FAILED)
        _emit(draft, EventType.STEP_FAILED, step, report, Reason.ATTEMPTS_EXHAUSTED)
        end_if_done(draft, key)
        return Reason.ATTEMPTS_EXHAUSTED
    if report.retry_after_ms is not None:
        reason, wait = Reason.RETRY_AFTER, bounded(report.retry_after_ms, LIMIT_MS)
    else:
        reason, wait = Reason.RETRY, backoff_ms(retry, step.attempts, report.key)
    _again(draft, key, step, draft.now + wait)
    _emit(draft, EventType.STEP_FAILED, step, report, reason, next_due_at=draft.now + wait)
    return reason


def _conclude(draft: Draft, key: str, step: Step, state: StepState) -> None:
    draft.set_step(key, replace(step, state=state, claim_deadline=None, reason=Reason.ATTEMPTS_EXHAUSTED))


def _again(draft: Draft, key: str, step: Step, due_at: int) -> None:
    draft.set_step(key, replace(step, state=StepState.PENDING, due_at=due_at, claim_deadline=None, reason=None))


def _unknown(draft: Draft, notification: Notification, step: Step, report: Outcome) -> Reason:
    """The provider may have accepted it. Its policy decides, and the key does not change."""
    key = report.dedup_key
    if notification.ended is not None:
        _emit(draft, EventType.STEP_UNKNOWN, step, report, STOPPED_BY[notification.ended])
        draft.set_step(key, replace(step, state=StepState.HELD, claim_deadline=None, reason=Reason.HELD))
        return Reason.HELD
    retry = notification.ladder.retry if notification.ladder else None
    exhausted = retry is None or step.attempts >= retry.max_attempts
    if retry is None or exhausted or report.unknown_policy in {None, UnknownPolicy.HOLD}:
        reason = Reason.ATTEMPTS_EXHAUSTED if exhausted else Reason.HELD
        draft.set_step(key, replace(step, state=StepState.HELD, claim_deadline=None, reason=reason))
        _emit(draft, EventType.STEP_UNKNOWN, step, report, reason)
        end_if_done(draft, key)
        return reason
    lookup = report.unknown_policy is UnknownPolicy.LOOKUP
    due_at = draft.now + backoff_ms(retry, step.attempts, report.key)
    _again(draft, key, replace(step, lookup=lookup, provider=report.provider or step.provider), due_at)
    reason = Reason.LOOKUP if lookup else Reason.RETRY
    _emit(draft, EventType.STEP_UNKNOWN, step, report, reason, next_due_at=due_at)
    return reason


def _unclaimed(draft: Draft, notification: Notification, step: Step, report: Outcome) -> Reason:
    """The worker came to it after its deadline and did not call: no attempt is used up, and it is decided afresh, at
    once the first time."""
    if notification.ended is not None:
        why = STOPPED_BY[notification.ended]
        suppress(draft, report.dedup_key, step, why, detail=Reason.UNCLAIMED)
        return why
    until = draft.now + (_REST_MS if step.claim > step.attempts else 0)
    draft.set_step(report.dedup_key, reopened(step, until, Reason.UNCLAIMED))
    if until > draft.now:
        # Claimed again only later: until then readers would take it for claimed.
        defer(draft, report.dedup_key, notification, step, until, Reason.UNCLAIMED)
    return Reason.UNCLAIMED


def _suppressed(draft: Draft, notification: Notification, step: Step, report: Outcome) -> Reason:
    """The worker saw a stop as its last act before the call."""
    why = _WORKER_STOPS.get(report.reason, Reason.RESOLVED)
    unused = replace(step, attempts=step.attempts - 1)
    suppress(draft, report.dedup_key, unused, why, detail="before_call")
    if notification.ended is None and why not in {Reason.RESOLVED, Reason.EXPIRED}:
        # A resolution that the worker has seen is on its way here, and the expiry's wake-up is: they will end the
        # notification by their own names.
        end_if_done(draft, report.dedup_key)
    return why


def _delivered(draft: Draft, notification: Notification, step: Step, report: Outcome) -> Reason:
    """A receipt is proof that the message left, whatever was known before."""
    key = report.dedup_key
    if step.reason == Reason.BOUNCED:
        draft.set_step(key, replace(step, state=StepState.SENT, reason=None))
    elif step.state is not StepState.SENT:
        _left(draft, notification, step, report)
    _emit(draft, EventType.STEP_DELIVERED, step, report, Reason.DELIVERED)
    if notification.ended is None:
        if notification.ladder is not None and notification.ladder.stop_on in {"sent", "delivered"}:
            _finish(draft, key, Reason.STOPPED_BY_DELIVERED)
        else:
            end_if_done(draft, key)
    return Reason.DELIVERED


def _bounced(draft: Draft, notification: Notification, step: Step, report: Outcome) -> Reason:
    """Accepted first and refused later: the same as a rejection, only later."""
    key = report.dedup_key
    if step.state is StepState.REJECTED:
        return Reason.STALE_OUTCOME
    if step.state is not StepState.SENT:
        _left(draft, notification, step, report)
    draft.set_step(
        key,
        replace(step, state=StepState.REJECTED, claim_deadline=None, reason=Reason.BOUNCED, waiting=False),
    )
    _emit(draft, EventType.STEP_BOUNCED, step, report, Reason.BOUNCED)
    _contact_died(draft, step, report)
    if notification.ended is None:
        promote_next(draft, key, step, Reason.BOUNCED)
        end_if_done(draft, key)
    return Reason.BOUNCED
