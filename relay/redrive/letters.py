"""A dead letter as it lies in its topic, and what its marks say."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID, uuid5

from schemas.dead_letters import PREFIX, REDRIVES_HEADER
from schemas.envelope import Headers
from schemas.topics import CATALOGUE, Topic

DONE_HEADER = "rung_redriven"
"""Of a mark in `dead-letters`: the offset, in the same partition, of the letter that went back."""
ID_HEADER = "rung_redrive_id"
NAMESPACE = UUID("6f6e4a54-51f7-5d5c-9a1e-2d2f0a6d7b18")
"""Of redrive ids; a change makes a letter that went back look like another one."""
_TOPICS = {topic.name: topic for topic in CATALOGUE}
_DIGITS = 15


@dataclass(frozen=True, slots=True)
class Letter:
    """One record of `dead-letters`."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    """The original ones and ours."""
    reason: str
    topic: Topic | None
    """Where it was read; None where that is no topic of the catalogue."""
    at: int
    """When it was set aside, milliseconds since the epoch."""
    redrives: int

    @property
    def redrive_id(self) -> UUID:
        """The same whenever it is asked for: a letter counts once."""
        return uuid5(NAMESPACE, f"{self.partition}|{self.offset}|{self.at}")

    @property
    def original(self) -> Headers:
        """The headers without our marks."""
        return [(name, value) for name, value in self.headers if not name.startswith(PREFIX)]


def done_offset(headers: Iterable[tuple[str, bytes | str | None]]) -> int | None:
    """The offset that a mark is about; None if this is no mark."""
    return _number(_bytes(dict(headers).get(DONE_HEADER)))


def mark(letter: Letter) -> Headers:
    """The headers of the mark that a letter went back."""
    return [(DONE_HEADER, str(letter.offset).encode()), (ID_HEADER, str(letter.redrive_id).encode())]


def read(
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | str | None]],
) -> Letter | None:
    """A letter out of a record of `dead-letters`; None where its marks are not those of one."""
    kept = [(name, _bytes(text)) for name, text in headers]
    found = dict(kept)
    at = _number(found.get(PREFIX + "at"))
    if at is None or PREFIX + "topic" not in found or PREFIX + "reason" not in found:
        return None
    reason, topic = (found[PREFIX + name].decode(errors="replace") for name in ("reason", "topic"))
    redrives = _number(found[REDRIVES_HEADER]) if REDRIVES_HEADER in found else 0
    # A count that cannot be read is no reason to begin to count anew.
    count = redrives if redrives is not None else 10**_DIGITS
    return Letter(partition, offset, key, value, kept, reason, _TOPICS.get(topic), at, count)


def _bytes(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) <= _DIGITS else None
