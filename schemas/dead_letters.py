"""A dead letter: the record as it came, with headers that say where it came from and why it is here.

The key and the value are kept byte for byte and the original headers stay, so nothing is lost and the record can be
put back. The headers of ours start with `rung_dl_`. Brokers look at the size of a batch as its producer compressed it,
so a record can be many times larger than any topic takes; of such a one a part is left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from schemas.envelope import Headers
from schemas.reasons import DeadReason
from schemas.topics import DEAD_LETTERS

PREFIX = "rung_dl_"
REDRIVES_HEADER = "rung_redrives"
"""How often a record was put back; it stays with the record when it is set aside again, so nothing goes round."""
SET_ASIDE_AT_HEADER = "rung_set_aside_at"
"""Of a record that was put back: when it had been set aside, decimal milliseconds."""
DETAIL_LIMIT = 500
_PER_HEADER = 10
_ROOM = 1024
"""What Kafka's formats of a batch, a record and a header add, and more."""
_MOST = DEAD_LETTERS.max_message_bytes - _ROOM
_Original = Iterable[tuple[str, bytes | str | None]] | None


class LetterRecord(NamedTuple):
    """What is written for a dead letter."""

    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why a record was set aside, and where it was read."""

    reason: DeadReason
    detail: str
    topic: str
    """The catalogue name of the topic it was read from (no prefix)."""
    partition: int
    offset: int
    service: str
    at: int

    def record(self, key: bytes | None, value: bytes | None, original: _Original) -> LetterRecord:
        """The record to write. Of one that `dead-letters` could not hold the value is left out, and then the headers
        and the key; the detail says which, and the place where it was read says where it still is."""
        headers = self.headers(original)
        if _size(key, value, headers) <= _MOST:
            return LetterRecord(key, value, headers)
        headers = self._without(f"the value of {len(value or b'')} bytes").headers(original)
        if _size(key, None, headers) <= _MOST:
            return LetterRecord(key, None, headers)
        return LetterRecord(None, None, self._without("key, value and headers").headers(None))

    def _without(self, what: str) -> "DeadLetter":
        detail = f"{self.detail[: DETAIL_LIMIT // 2]}; too large for the dead letters: {what} left out"
        return replace(self, detail=detail)

    def headers(self, original: _Original) -> Headers:
        """The original headers, then ours. An older dead letter's marks are replaced, so a record that fails again
        after a redrive says why it failed last."""
        kept = [
            (name, value.encode() if isinstance(value, str) else value or b"")
            for name, value in original or ()
            if not name.startswith(PREFIX)
        ]
        return [
            *kept,
            (PREFIX + "reason", self.reason.encode()),
            (PREFIX + "detail", self.detail[:DETAIL_LIMIT].encode(errors="replace")),
            (PREFIX + "topic", self.topic.encode()),
            (PREFIX + "partition", str(self.partition).encode()),
            (PREFIX + "offset", str(self.offset).encode()),
            (PREFIX + "service", self.service.encode()),
            (PREFIX + "at", str(self.at).encode()),
        ]


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    names = sum(len(name.encode()) + len(content) + _PER_HEADER for name, content in headers)
    return len(key or b"") + len(value or b"") + names
