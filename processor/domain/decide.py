"""`decide`: the one function through which every transition goes.

    state | None, event, now  ->  new state, commands, named reason

It is total: any state with any event yields a decision, and never an exception. Matching goes by the event first,
then by the state in one helper per event. Whatever the event was, the recipient is then brought up to `now`.

    notification:  open ──▶ resolved | expired | finished | dead | erased      (ended states absorb)
                     ▲                                     │
                     └─────────────────────────────────────┘  redrive, by an operator, once per id
    step:          pending ──▶ claimed ──▶ sent | rejected | failed | held | suppressed
                      ▲            │
                      └────────────┘  retry, lookup, unclaimed, lost claim

The stop condition is looked at when a step is due (here) and again by the worker as its last act before the call.
"""

from typing import assert_never

from processor.domain import outcomes, redrives, requests
from processor.domain.advance import advance
from processor.domain.draft import Draft
from processor.domain.model import (
    Decision,
    Event,
    NotifyReceived,
    OutcomeReceived,
    RecipientErased,
    RecipientPut,
    RedriveReceived,
    ResolutionReceived,
    WokeUp,
)
from schemas.reasons import Reason
from schemas.state import RecipientState


def recipient_of(event: Event) -> str:
    """Whom an event is about: the key of its record and of the state."""
    match event:
        case NotifyReceived():
            return event.notify.recipient
        case RedriveReceived():
            return event.redrive.recipient
        case RecipientPut():
            return event.put.recipient
        case RecipientErased():
            return event.erase.recipient
        case ResolutionReceived():
            return event.resolve.recipient
        case WokeUp():
            return event.recipient
        case OutcomeReceived():
            return event.outcome.recipient
        case _:
            assert_never(event)


def decide(state: RecipientState | None, event: Event, now: int) -> Decision:
    """Decide what `event` does to its recipient at `now` (milliseconds since the epoch, never going back within a
    partition). Pure: the same arguments give an equal decision."""
    draft = Draft.of(state, recipient_of(event), now)
    reason = _apply(draft, event)
    claimed = advance(draft)
    if reason is Reason.NOTHING_DUE and claimed:
        reason = Reason.DUE
    return draft.decision(state, reason)


def _apply(draft: Draft, event: Event) -> Reason:
    match event:
        case NotifyReceived():
            return requests.notify(draft, event)
        case RedriveReceived():
            return redrives.redrive(draft, event)
        case RecipientPut():
            return requests.put_recipient(draft, event)
        case RecipientErased():
            return requests.erase_recipient(draft, event)
        case ResolutionReceived():
            return requests.resolve(draft, event)
        case WokeUp():
            if event.due_at == draft.wake_at:
                # It is not outstanding any more. Where the delayer's clock is ahead of ours, it is asked for again.
                draft.wake_at = None
            return Reason.NOTHING_DUE
        case OutcomeReceived():
            return outcomes.outcome(draft, event)
        case _:
            assert_never(event)
