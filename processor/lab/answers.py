"""What a provider answers in the lab: a script of answers for successive calls, the last one repeated."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from processor.domain.durations import parse_duration
from processor.domain.toml_table import Table
from schemas.records import Delivery, Outcome, OutcomeKind, UnknownPolicy

FORMS = '"sent", "503" (any HTTP status), "failed: why", "rejected: why", "unknown" or "lost"'
EVERYONE = "*"
"""In the place of a recipient: the script of all who have none of their own."""

_STATUS = re.compile(r"[1-5][0-9]{2}")
_WORDS = {
    kind.value: kind for kind in (OutcomeKind.SENT, OutcomeKind.FAILED, OutcomeKind.REJECTED, OutcomeKind.UNKNOWN)
}
_RETRYABLE_STATUS = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to one call. Lengths in milliseconds."""

    outcome: OutcomeKind | None
    """None: the worker dies with the call, and nobody ever answers."""
    reason: str = ""
    retry_after_ms: int | None = None
    latency_ms: int = 0
    unknown_policy: UnknownPolicy | None = None
    receipt: OutcomeKind | None = None
    receipt_after_ms: int = 0


SENT = Answer(OutcomeKind.SENT)


def parse_answer(text: str) -> Answer:
    """An answer in its short form.

    Raises:
        ValueError: the text has another form; the message lists the forms.
    """
    word, _, why = (part.strip() for part in text.partition(":"))
    if _STATUS.fullmatch(word) and not why:
        return _of_status(int(word))
    if word == "lost" and not why:
        return Answer(None)
    if word not in _WORDS or (word == "sent" and why):
        raise ValueError(f"{text[:60]!r} is no answer: write {FORMS}")
    policy = UnknownPolicy.RESEND if word == "unknown" else None
    return Answer(_WORDS[word], why or {"unknown": "timeout"}.get(word, ""), unknown_policy=policy)


def _of_status(status: int) -> Answer:
    if status < 300:
        return SENT
    transient = status >= 500 or status in _RETRYABLE_STATUS
    return Answer(OutcomeKind.FAILED if transient else OutcomeKind.REJECTED, f"http_{status}")


def read_answer(table: Table) -> Answer:
    """An answer with its circumstances: how long it takes, when to come back, what is known later."""
    table.refuse_unknown(("answer", "retry_after", "latency", "policy", "receipt", "receipt_after"))
    answer = SENT
    text = table.text("answer", None)
    if "answer" not in table.faulty:
        try:
            answer = parse_answer(text)
        except ValueError as error:
            table.problem("answer", str(error))
    receipt = table.choice("receipt", ("", "delivered", "bounced"))
    if receipt and answer.outcome is not OutcomeKind.SENT:
        table.problem("receipt", "comes for a message that was sent; let the answer be sent, or leave it out")
    return Answer(
        outcome=answer.outcome,
        reason=answer.reason,
        retry_after_ms=table.duration("retry_after", None) if "retry_after" in table.values else None,
        latency_ms=table.duration("latency", 0),
        unknown_policy=answer.unknown_policy and UnknownPolicy(table.choice("policy", ("resend", "lookup", "hold"))),
        receipt=OutcomeKind(receipt) if receipt else None,
        receipt_after_ms=table.duration("receipt_after", parse_duration("1s")),
    )


class ScriptedProviders:
    """All providers of a scenario. Calls are counted for each recipient and channel."""

    def __init__(self, scripts: Mapping[tuple[str, str], tuple[Answer, ...]]) -> None:
        self._scripts = scripts
        self._calls: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.accepted: list[tuple[str, str]] = []
        """Channel and address of each message that a provider has taken, in the order of the calls."""
        self.answered_until = 0
        """When the last answer or receipt so far is given, milliseconds since the epoch."""

    def __call__(self, delivery: Delivery, now: int) -> Iterator[Outcome]:
        """The outcomes of one call made at `now`, each at its own moment."""
        answer = self._next(delivery)
        if answer.outcome is None:
            return
        if answer.outcome is OutcomeKind.SENT:
            self.accepted.append((delivery.channel, delivery.address))
        reference = f"{delivery.channel}-{len(self.accepted)}" if answer.outcome is OutcomeKind.SENT else None
        yield self._outcome(delivery, answer, answer.outcome, now + answer.latency_ms, reference)
        if answer.receipt is not None:
            at = now + answer.latency_ms + answer.receipt_after_ms
            yield self._outcome(delivery, answer, answer.receipt, at, reference)

    def _next(self, delivery: Delivery) -> Answer:
        call = self._calls[delivery.recipient, delivery.channel]
        self._calls[delivery.recipient, delivery.channel] += 1
        own, everyones = (delivery.recipient, delivery.channel), (EVERYONE, delivery.channel)
        script = self._scripts.get(own) or self._scripts.get(everyones) or (SENT,)
        return script[min(call, len(script) - 1)]

    def _outcome(
        self, delivery: Delivery, answer: Answer, outcome: OutcomeKind, at: int, reference: str | None
    ) -> Outcome:
        self.answered_until = max(self.answered_until, at)
        is_receipt = outcome in {OutcomeKind.DELIVERED, OutcomeKind.BOUNCED}
        return Outcome(
            notification_id=delivery.notification_id,
            recipient=delivery.recipient,
            dedup_key=delivery.dedup_key,
            step_no=delivery.step_no,
            channel=delivery.channel,
            attempt=delivery.attempt,
            claim=0 if is_receipt else delivery.claim,
            key=delivery.key,
            outcome=outcome,
            reason=answer.reason,
            provider=f"{delivery.channel}-lab",
            provider_ref=reference,
            retry_after_ms=None if is_receipt else answer.retry_after_ms,
            unknown_policy=None if is_receipt else answer.unknown_policy,
            latency_ms=None if is_receipt else answer.latency_ms,
            at=at,
        )
