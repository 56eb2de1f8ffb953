"""Whether a dead letter may go back, and as what: pure, without Kafka and without a clock."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from relay.redrive.letters import Letter
from schemas.codec import Decoded, decode, encode
from schemas.dead_letters import REDRIVES_HEADER, SET_ASIDE_AT_HEADER
from schemas.envelope import Envelope, Headers, to_headers
from schemas.errors import DecodeError
from schemas.reasons import DeadReason
from schemas.records import EraseRecipient, Notify, PutRecipient, Redrive
from schemas.topics import DAY_MS, HOUR_MS, NOTIFICATIONS, RECIPIENTS, Topic

SOURCE = "/rung/redrive"
REMEMBERED_MS = 7 * DAY_MS - HOUR_MS
"""How old a request may be. The processor remembers a resolution without a notification, and what has ended, for seven
days; the hour is for what the record waits on its way."""
OVERHEAD = 200
"""More bytes than a record takes besides its key, its value and its headers."""

Understood = Callable[[Topic, Letter], Decoded]
"""Reads a letter as its reader would today; raises `DecodeError` where that would set it aside again."""


class Refusal(StrEnum):
    """Why a letter does not go back."""

    STILL_BAD = "still_bad"
    """Its reader would set it aside again today."""
    LIMIT = "limit"
    """It was put back as often as is allowed."""
    TOO_OLD = "too_old"
    """So old that the processor may have forgotten whether the person has acted."""
    EXPIRED = "expired"
    """It is of no use any more by its own expiry."""
    FINAL = "final"
    """It was put back and refused for good: superseded or forgotten."""
    WRITE_AGAIN = "write_again"
    """An old state of a profile, which might undo a newer one: the profile has to be written again."""
    TOO_LARGE = "too_large"
    UNMARKED = "unmarked"
    """Its marks do not say where it was read."""


@dataclass(frozen=True, slots=True)
class Back:
    """The record to write."""

    topic: Topic
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Refused:
    """The letter stays where it is."""

    why: Refusal
    detail: str = ""


def plainly(topic: Topic, letter: Letter) -> Decoded:
    """Understand a letter by the contract alone."""
    return decode(topic, letter.key, letter.value, letter.original)


def judge(letter: Letter, now: int, limit: int, understood: Understood = plainly) -> Back | Refused:
    """What becomes of a letter at `now` (milliseconds since the epoch); `limit` is how often a record may go back."""
    topic = letter.topic
    if topic is None:
        return Refused(Refusal.UNMARKED)
    if letter.reason in {DeadReason.FORGOTTEN, DeadReason.SUPERSEDED}:
        return Refused(Refusal.FINAL, letter.reason)
    if letter.redrives >= limit:
        return Refused(Refusal.LIMIT, f"{letter.redrives} times")
    if topic is RECIPIENTS:
        return Refused(Refusal.WRITE_AGAIN)
    try:
        decoded = understood(topic, letter)
    except DecodeError as error:
        return Refused(Refusal.STILL_BAD, error.reason)
    refused = _too_late(letter, decoded, now)
    if refused is not None:
        return refused
    back = _back(topic, letter, decoded, now)
    size = len(back.key or b"") + len(back.value or b"") + sum(len(n) * 4 + len(v) for n, v in back.headers) + OVERHEAD
    return Refused(Refusal.TOO_LARGE, f"{size} bytes") if size > topic.max_message_bytes else back


def _too_late(letter: Letter, decoded: Decoded, now: int) -> Refused | None:
    record = decoded.record
    if isinstance(record, Notify | Redrive):
        if record.expires_at is not None and record.expires_at <= now:
            return Refused(Refusal.EXPIRED)
        # An undelivered one is remembered from its end on; of another one, a resolution may be as old as the request.
        began = letter.at if isinstance(record, Redrive) or _undelivered(letter) else decoded.envelope.time or letter.at
    elif isinstance(record, PutRecipient | EraseRecipient):
        began = letter.at
    else:
        # A resolution stops, a wake-up says nothing, an outcome and a claim belong to what stands in the state.
        return None
    return Refused(Refusal.TOO_OLD) if now - min(began, letter.at) >= REMEMBERED_MS else None


def _undelivered(letter: Letter) -> bool:
    return letter.reason == DeadReason.UNDELIVERABLE and letter.topic is NOTIFICATIONS


def _back(topic: Topic, letter: Letter, decoded: Decoded, now: int) -> Back:
    record, value = decoded.record, letter.value
    headers = [(n, v) for n, v in letter.original if n not in {REDRIVES_HEADER, SET_ASIDE_AT_HEADER}]
    if _undelivered(letter) and isinstance(record, Notify):
        value = encode(_redrive(letter, record))
        headers = to_headers(Envelope(str(letter.redrive_id), Redrive.TYPE, SOURCE, now))
    elif letter.reason == DeadReason.CONFLICT:
        # Its own id is remembered as one that was seen, and it would vanish without a word.
        headers = [(n, v) for n, v in headers if n != "ce_id"] + [("ce_id", str(letter.redrive_id).encode())]
    if isinstance(record, PutRecipient | EraseRecipient):
        headers.append((SET_ASIDE_AT_HEADER, str(letter.at).encode()))
    headers.append((REDRIVES_HEADER, str(letter.redrives + 1).encode()))
    return Back(topic, letter.key, value, headers)


def _redrive(letter: Letter, request: Notify) -> Redrive:
    return Redrive(
        redrive_id=letter.redrive_id,
        notification_id=request.notification_id,
        recipient=request.recipient,
        kind=request.kind,
        dedup_key=request.dedup_key,
        data=request.data,
        expires_at=request.expires_at,
    )
