"""What the worker learns from the topics that it follows: resolutions, profile changes and outcomes."""

from collections.abc import Callable

from confluent_kafka import Message

from processor.delivery.answers import Answers
from processor.delivery.guard import Guard
from processor.delivery.metrics import DeliveryMetrics
from schemas.codec import decode, decode_key
from schemas.dead_letters import DeadLetter
from schemas.envelope import from_headers, headers_of
from schemas.errors import DecodeError
from schemas.records import Outcome, RecipientProfile, Resolve
from schemas.topics import OUTCOMES, RECIPIENTS, RESOLUTIONS, Topic

SERVICE = "delivery"


class Intake:
    """Feeds the guard and the answers."""

    def __init__(
        self,
        guard: Guard,
        answers: Answers,
        metrics: DeliveryMetrics,
        in_flight: Callable[[str, str], bool],
    ) -> None:
        """`in_flight` tells whether a call for this recipient and dedup key is under way."""
        self._guard = guard
        self._answers = answers
        self._metrics = metrics
        self._in_flight = in_flight

    def read(self, topic: Topic, message: Message, now: int) -> DeadLetter | None:
        """Take in one record of a followed topic. An unreadable one of `recipients` is returned as a dead letter: no
        other service of ours reads that topic. The processor reads the other two and sets their bad records aside."""
        try:
            if topic is RECIPIENTS:
                self._recipient(message, now)
            else:
                self._record(topic, message, now)
        except DecodeError as error:
            if topic is RECIPIENTS:
                return dead_letter(topic, message, error, now)
            self._metrics.skipped.labels(topic.name).inc()
        return None

    def _record(self, topic: Topic, message: Message, now: int) -> None:
        partition = message.partition() or 0
        match decode(topic, message.key(), message.value(), headers_of(message)).record:
            case Resolve() as resolve if topic is RESOLUTIONS:
                if self._in_flight(resolve.recipient, resolve.dedup_key):
                    self._metrics.resolved_in_flight.inc()
                self._guard.resolved(partition, resolve.recipient, resolve.dedup_key, now)
            case Outcome() as outcome if topic is OUTCOMES:
                self._answers.record(partition, outcome, now)

    def _recipient(self, message: Message, now: int) -> None:
        partition, made_at = message.partition() or 0, message.timestamp()[1]
        if message.value() is None:
            recipient = decode_key(message.key())
            self._guard.changed(partition, recipient, None, _made_at(message) or made_at, now)
            return
        found = decode(RECIPIENTS, message.key(), message.value(), headers_of(message))
        if isinstance(found.record, RecipientProfile):
            made_at = found.envelope.time or made_at
            self._guard.changed(partition, found.record.recipient, found.record.profile, made_at, now)


def dead_letter(topic: Topic, message: Message, error: DecodeError, now: int) -> DeadLetter:
    """The marks of a record that is set aside."""
    partition, offset = message.partition() or 0, message.offset() or 0
    return DeadLetter(error.reason, error.detail, topic.name, partition, offset, SERVICE, now)


def _made_at(message: Message) -> int:
    """When a tombstone was decided; other writers' tombstones may come without headers."""
    try:
        return from_headers(headers_of(message)).time
    except DecodeError:
        return 0
