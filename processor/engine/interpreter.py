"""The one interpreter: commands of a decision become records. It does no I/O; the engine writes what it returns.

What a crash leaves behind, by the point at which the process dies. One transaction holds the outputs, the changelog of
the state, and the input offsets of some 50 ms of work:

| the process dies                  | outputs       | state                 | afterwards                            |
|-----------------------------------|---------------|-----------------------|---------------------------------------|
| before a record is decided        | none          | as before             | the record is read again              |
| after that, before any output     | none          | as before             | read again, decided at a later moment |
| with outputs, transaction open    | never visible | as before             | fenced, aborted, read again           |
| while the transaction commits     | all or none   | changelog: the same   | waits for the commit or abort         |
| before the local store is written | all, once     | disk behind changelog | the missing tail is replayed first    |
| at any point, disk lost           | as above      | changelog             | the whole changelog is replayed first |

So each input has its outputs once in `read_committed` reading. What may repeat lies outside: the relay publishes a row
again after a crash of its own (the domain drops what it has seen), and a provider call is made before its outcome is.
"""

from collections.abc import Iterable
from typing import assert_never
from uuid import UUID

from processor.domain.model import Command, Deliver, Emit, PublishProfile, SetAside, WakeAt
from processor.engine.port import InputRecord, OutputRecord
from schemas.codec import encode, encode_key
from schemas.dead_letters import REDRIVES_HEADER, DeadLetter
from schemas.envelope import DUE_AT_HEADER, Headers, headers_for
from schemas.ids import NameSpace
from schemas.reasons import DeadReason
from schemas.records import Delivery, Due, Notify, RecipientProfile
from schemas.topics import (
    DEAD_LETTERS,
    DELAYS,
    DELIVERIES,
    DELIVERY_EVENTS,
    NOTIFICATIONS,
    RECIPIENTS,
    Tier,
    Topic,
    tier_for,
)

SERVICE = "processor"
SOURCE = "/rung/processor"
NAMESPACE = UUID("3c9b0b2e-6f0b-5a54-8d0a-2c1f7c1f6a90")
"""Of the ids that are derived here; a change makes new ids for records that are written again."""

_IDS = NameSpace(NAMESPACE)
_DELAY_TOPICS: dict[str, Topic] = {topic.name: topic for topic in DELAYS}


def interpret(commands: Iterable[Command], record: InputRecord, now: int) -> list[OutputRecord]:
    """The records that a decision's commands ask for, in their order.

    Args:
        commands: what was decided.
        record: the input that it was decided on.
        now: the moment of the decision, milliseconds since the epoch.
    """
    return [_interpret(command, record, now) for command in commands]


def dead_letter(record: InputRecord, reason: DeadReason, detail: str, now: int) -> OutputRecord:
    """The record as it came, with marks that say where it was read and why it is set aside."""
    marks = DeadLetter(reason, detail, record.topic.name, record.partition, record.offset, SERVICE, now)
    return OutputRecord(DEAD_LETTERS, *marks.record(record.key, record.value, record.headers))


def _interpret(command: Command, record: InputRecord, now: int) -> OutputRecord:
    match command:
        case Emit():
            return _emit(command)
        case Deliver():
            return _deliver(command.delivery)
        case WakeAt():
            return _wake_at(command, now)
        case PublishProfile():
            return _publish_profile(command, record, now)
        case SetAside():
            if command.notify is None:
                return dead_letter(record, command.reason, command.detail, now)
            return _undelivered(command, command.notify, record, now)
        case _:
            assert_never(command)


def _undelivered(command: SetAside, request: Notify, record: InputRecord, now: int) -> OutputRecord:
    """A dead letter that no input was: the request, made again of what the state knows of it. Its place is that of the
    input on which it was given up."""
    place = (record.topic.name, str(record.partition), str(record.offset))
    headers = _headers(_derived("letter", str(request.notification_id), *place), Notify.TYPE, now)
    if command.redrives:
        headers.append((REDRIVES_HEADER, str(command.redrives).encode()))
    marks = DeadLetter(
        command.reason, command.detail, NOTIFICATIONS.name, record.partition, record.offset, SERVICE, now
    )
    return OutputRecord(DEAD_LETTERS, *marks.record(encode_key(request.recipient), encode(request), headers))


def _emit(command: Emit) -> OutputRecord:
    event = command.event
    headers = _headers(command.event_id, command.type, event.at)
    return OutputRecord(DELIVERY_EVENTS, encode_key(event.recipient), encode(event), headers)


def _deliver(delivery: Delivery) -> OutputRecord:
    event_id = _derived("delivery", delivery.key, str(delivery.claim))
    headers = _headers(event_id, Delivery.TYPE, delivery.claimed_at)
    return OutputRecord(DELIVERIES, encode_key(delivery.recipient), encode(delivery), headers)


def _wake_at(command: WakeAt, now: int) -> OutputRecord:
    due = Due(recipient=command.recipient, due_at=command.due_at)
    headers = _headers(_derived("due", due.recipient, str(due.due_at)), Due.TYPE, now)
    headers.append((DUE_AT_HEADER, str(due.due_at).encode()))
    return OutputRecord(_delay_topic(tier_for(due.due_at - now)), encode_key(due.recipient), encode(due), headers)


def _publish_profile(command: PublishProfile, record: InputRecord, now: int) -> OutputRecord:
    event_id = _derived("profile", command.recipient, record.topic.name, str(record.partition), str(record.offset))
    headers = _headers(event_id, RecipientProfile.TYPE, now)
    value = None
    if command.profile is not None:
        value = encode(
            RecipientProfile(recipient=command.recipient, profile=command.profile, dead_contacts=command.dead_contacts)
        )
    return OutputRecord(RECIPIENTS, encode_key(command.recipient), value, headers)


def _delay_topic(tier: Tier) -> Topic:
    return _DELAY_TOPICS[tier.topic]


def _headers(event_id: str, event_type: str, at: int) -> Headers:
    return headers_for(event_id, event_type, SOURCE, at)


def _derived(*parts: str) -> str:
    return _IDS.text("|".join(parts).encode())
