"""A record as it is held, and the records that it is forwarded as."""

from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Message

from relay.delays.plan import due_at, next_tier, release_at
from schemas.codec import decode_key
from schemas.dead_letters import DeadLetter
from schemas.envelope import Headers, RawHeaders, headers_of
from schemas.errors import DecodeError
from schemas.reasons import DeadReason
from schemas.topics import DEAD_LETTERS, DUE, Tier, Topic

SERVICE = "delays"
_OVERHEAD = 500
"""What the objects of a held record take in memory, about, besides its key and value."""


@dataclass(slots=True, eq=False)
class Held:
    """A record that was read. One that cannot be forwarded has a `dead` reason and leaves at once."""

    tier: Tier
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: RawHeaders
    due_at: int
    release_at: int
    size: int
    late_ms: int
    """How long after the end of its tier it was read; 0 when in time."""
    dead: DecodeError | None = None

    suspect: bool = False
    """The broker refused a batch that held it: it is written in a batch of its own, to tell whether it was the one."""

    def refused(self) -> None:
        """The broker refused, for its size, a batch that held this record. If the record was alone in it, the record
        becomes a dead letter, and if that is too large as well, one without its value."""
        if not self.suspect:
            self.suspect = True
        elif self.dead is None or self.dead.reason is not DeadReason.TOO_LARGE:
            self.dead = DecodeError(DeadReason.TOO_LARGE, "too large to be forwarded as it is")
        else:
            size, self.value = len(self.value or b""), None
            detail = f"too large for the dead letters too: the value of {size} bytes is left out"
            self.dead = DecodeError(DeadReason.TOO_LARGE, detail)


class Output(NamedTuple):
    """What to produce for a held record, and the topic of the catalogue or the tier that it goes to."""

    held: Held
    target: Topic | Tier
    key: bytes | None
    value: bytes | None
    headers: Headers | RawHeaders


def read(message: Message, tier: Tier, now: int) -> Held:
    """Take a message of `tier`, read at `now` (milliseconds since the epoch)."""
    kind, at = message.timestamp()
    try:
        headers = headers_of(message)
    except DecodeError:
        # Never asked for again: what the library has kept of them is half made, and it would crash.
        headers = None
    appended_at = int(at) if kind else None
    where = (message.partition(), message.offset())
    return hold(tier, where, message.key(), message.value(), headers, appended_at, now)


def hold(
    tier: Tier,
    where: tuple[int, int],
    key: bytes | None,
    value: bytes | None,
    headers: RawHeaders | None,
    appended_at: int | None,
    now: int,
) -> Held:
    """A record of `tier` at `where` (partition and offset), read at `now`; `headers` None are headers that the client
    cannot read. Times are in milliseconds since the epoch."""
    due, release, dead = 0, 0, None
    try:
        due = _check(key, value, headers)
        release = release_at(due, appended_at, tier, now)
    except DecodeError as error:
        dead = error
    size = len(key or b"") + len(value or b"") + _OVERHEAD
    late = now - appended_at - tier.delay_ms if appended_at is not None else 0
    partition, offset = where
    return Held(tier, partition, offset, key, value, headers or [], due, release, size, late if late > 0 else 0, dead)


def _check(key: bytes | None, value: bytes | None, headers: RawHeaders | None) -> int:
    decode_key(key)
    if headers is None:
        raise DecodeError(DeadReason.BAD_HEADER, "a header's name is not UTF-8; the headers are lost")
    if value is None:
        raise DecodeError(DeadReason.NULL_VALUE, "a wake-up must have a value")
    return due_at(headers)


def output(held: Held, now: int) -> Output:
    """What a released record is forwarded as, at `now` (milliseconds since the epoch)."""
    if held.dead is None:
        return Output(held, next_tier(held.due_at, now) or DUE, held.key, held.value, held.headers)
    letter = DeadLetter(
        reason=held.dead.reason,
        detail=held.dead.detail,
        topic=held.tier.topic,
        partition=held.partition,
        offset=held.offset,
        service=SERVICE,
        at=now,
    )
    return Output(held, DEAD_LETTERS, *letter.record(held.key, held.value, held.headers))
