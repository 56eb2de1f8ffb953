"""From a claim and what became of it to the outcome record. Pure."""

from msgspec.structs import replace

from processor.delivery.caller import Answered
from processor.delivery.channels.port import Failed, Rejected, Sent, Unknown
from processor.delivery.channels_config import ProviderConfig
from schemas.records import Delivery, Outcome, OutcomeKind, UnknownPolicy


def plain(claim: Delivery, kind: OutcomeKind, reason: str, now: int) -> Outcome:
    """An outcome without a provider."""
    return Outcome(
        notification_id=claim.notification_id,
        recipient=claim.recipient,
        dedup_key=claim.dedup_key,
        step_no=claim.step_no,
        channel=claim.channel,
        attempt=claim.attempt,
        claim=claim.claim,
        key=claim.key,
        outcome=kind,
        reason=reason,
        at=now,
    )


def rejected(claim: Delivery, reason: str, now: int) -> Outcome:
    """A refusal of our own that says nothing about the address."""
    return replace(plain(claim, OutcomeKind.REJECTED, reason, now), contact_alive=True)


def held(claim: Delivery, reason: str, now: int) -> Outcome:
    """It cannot be found out whether an earlier attempt was accepted, so the step is not sent again."""
    return replace(
        plain(claim, OutcomeKind.UNKNOWN, reason, now), unknown_policy=UnknownPolicy.HOLD, provider=claim.provider
    )


def answered(claim: Delivery, provider: ProviderConfig, answer: Answered, now: int) -> Outcome:
    """What the provider said."""
    match answer.result:
        case Sent(provider_ref=ref):
            found = replace(plain(claim, OutcomeKind.SENT, "", now), provider_ref=ref)
        case Rejected(reason=reason, contact_alive=alive):
            found = replace(plain(claim, OutcomeKind.REJECTED, reason, now), contact_alive=alive)
        case Failed(reason=reason, retry_after_ms=wait):
            found = replace(plain(claim, OutcomeKind.FAILED, reason, now), retry_after_ms=wait)
        case Unknown(reason=reason):
            found = replace(plain(claim, OutcomeKind.UNKNOWN, reason, now), unknown_policy=provider.unknown)
    return replace(found, provider=provider.name, latency_ms=answer.latency_ms)


def again(claim: Delivery, sent: Outcome) -> Outcome:
    """The outcome of a claim whose key was accepted under an earlier claim."""
    return replace(sent, claim=claim.claim, attempt=claim.attempt)
