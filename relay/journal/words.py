"""Plain words: one sentence for each decision's named reason, and what each event means to a person.

Sentences are templates. Their fields come from the event: `{due}` and `{next_due}` are moments, `{provider}` and
`{detail}` who answered and with which code. All of them read on after "step 0 push claimed: ".
"""

from schemas.reasons import Reason
from schemas.records import EventType

WHAT: dict[EventType, str] = {
    EventType.ACCEPTED: "accepted",
    EventType.DUPLICATE: "asked for again",
    EventType.CONFLICT: "asked for again with another body",
    EventType.RESOLVED: "resolved",
    EventType.TOO_LATE: "too late",
    EventType.EXPIRED: "expired",
    EventType.FINISHED: "finished",
    EventType.DEAD: "dead",
    EventType.ERASED: "erased",
    EventType.STEP_CLAIMED: "claimed",
    EventType.STEP_SENT: "sent",
    EventType.STEP_REJECTED: "rejected",
    EventType.STEP_FAILED: "failed",
    EventType.STEP_UNKNOWN: "unknown",
    EventType.STEP_SUPPRESSED: "suppressed",
    EventType.STEP_DEFERRED: "deferred",
    EventType.STEP_PROMOTED: "promoted",
    EventType.STEP_DELIVERED: "delivered",
    EventType.STEP_BOUNCED: "bounced",
}
"""What happened, in a word or a few."""

WHY: dict[Reason, str] = {
    Reason.ACCEPTED: "its kind has a ladder, and all its steps are planned",
    Reason.REDRIVEN: "an operator opened its ladder again, and what was not sent is planned anew",
    Reason.FORGOTTEN: "nothing is known of the notification any more, so it was not opened again",
    Reason.SUPERSEDED: "a later profile change or erasure was applied in the meantime",
    Reason.REDELIVERED: "the relay published this record before, so nothing is done again",
    Reason.DUPLICATE: "the same dedup key with the same body came again; the first notification stands",
    Reason.CONFLICT: "the same dedup key came again with another body; the first notification stands, and the second "
    "is a dead letter",
    Reason.UNKNOWN_KIND: "no ladder is configured for its kind; the request is a dead letter, and may be made again",
    Reason.PROFILE_UPDATED: "the recipient's profile was replaced",
    Reason.BAD_PROFILE: "the recipient's profile has a fault and was not taken",
    Reason.ERASED: "the recipient was erased",
    Reason.RESOLVED: "the person acted, so nothing more is needed",
    Reason.RESOLVED_EARLY: "the person acted before the notification came, and that was remembered",
    Reason.REMEMBERED: "the person acted and there is no notification yet; it is kept for one that may come",
    Reason.ALREADY_RESOLVED: "the person had acted before; nothing changes",
    Reason.ALREADY_ENDED: "the person acted after the ladder had ended",
    Reason.IN_FLIGHT: "the notification had ended while the provider call was under way, so the message left all "
    "the same",
    Reason.DUE: "it was due at {due} and the notification was still open",
    Reason.CLAIM_LOST: "no outcome of the last claim came within its deadline, so it was claimed again with the "
    "same key",
    Reason.UNCLAIMED: "the worker came to the last claim after its deadline and made no call, so it was decided afresh",
    Reason.PROMOTED: "the step before it cannot reach the person, so this one does not wait until {due}",
    Reason.QUIET_HOURS: "{due} lies in the person's quiet hours, which end at {next_due}",
    Reason.EXPIRED: "the notification is of no use any more after its expiry",
    Reason.CONSENT_WITHDRAWN: "the person has withdrawn consent to this kind",
    Reason.CONTACT_DEAD: "a provider has refused this address for good, and it has not changed since",
    Reason.NO_ADDRESS: "the person's profile has no address on this channel",
    Reason.PREFERENCE: "the person has switched this channel off for this kind",
    Reason.WAITING_FOR_ORDER: "its kind keeps strict order, and an earlier notification on this channel is not "
    "concluded",
    Reason.SENT: "the message has left",
    Reason.DELIVERED: "the provider reports that the message arrived",
    Reason.BOUNCED: "the provider reports that the message came back",
    Reason.REJECTED: "the refusal is final, so this step is not tried again",
    Reason.RETRY: "this may pass, so the next attempt is due at {next_due}, with the same key",
    Reason.RETRY_AFTER: "the provider said when to come back, so the next attempt is due at {next_due}, with the "
    "same key",
    Reason.ATTEMPTS_EXHAUSTED: "that was the last attempt that its kind allows",
    Reason.HELD: "the provider may have accepted the message and cannot be asked, so it is not sent again",
    Reason.LOOKUP: "the provider may have accepted the message, so the next attempt, due at {next_due}, asks before "
    "it sends",
    Reason.STALE_OUTCOME: "the report is about a claim that has been decided anew",
    Reason.STOPPED_BY_SENT: "its kind stops as soon as one message has left",
    Reason.STOPPED_BY_DELIVERED: "its kind stops as soon as one message has arrived",
    Reason.LADDER_ENDED: "no step is left to decide",
    Reason.TOO_LARGE: "all that is known of the recipient would grow beyond what is kept; the request is a dead letter",
    Reason.NOTHING_DUE: "nothing was due",
}
"""Why: every named reason in one sentence."""

ANSWER: dict[EventType, str] = {
    EventType.STEP_SENT: "{provider} accepted the message",
    EventType.STEP_REJECTED: "{provider} refused it for good ({detail})",
    EventType.STEP_FAILED: "{provider} answered {detail}",
    EventType.STEP_UNKNOWN: "{provider} gave no clear answer ({detail}) and may have accepted the message",
}
"""What the provider answered, for the events that carry an answer."""

ALSO: dict[str, str] = {
    Reason.CLAIM_LOST: "its claim was in a worker's hands, and no outcome came",
    Reason.UNCLAIMED: "a worker held its claim and made no call",
    "before_call": "the worker saw it as its last act before the call",
}
"""Of `suppressed`: what its detail means, where that is one of ours and no provider's code."""


def why(reason: str) -> str:
    """The sentence of a reason. A reason of a newer release stands by its name."""
    try:
        return WHY[Reason(reason)]
    except (KeyError, ValueError):
        return f"reason {reason.replace('{', '').replace('}', '')}, for which this release has no words"
