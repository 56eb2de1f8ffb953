"""A dead letter: the record as it came, with headers that say where it came from and why it is here.

The key and the value are kept byte for byte and the original headers stay, so nothing is lost and the record can be
put back. The headers of ours start with `rung_dl_`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.envelope import Headers
from schemas.reasons import DeadReason

PREFIX = "rung_dl_"
REDRIVES_HEADER = "rung_redrives"
"""How often a record was put back; it stays with the record when it is set aside again, so nothing goes round."""
SET_ASIDE_AT_HEADER = "rung_set_aside_at"
"""Of a record that was put back: when it had been set aside, decimal milliseconds."""
DETAIL_LIMIT = 500


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

    def headers(self, original: Iterable[tuple[str, bytes | str | None]] | None) -> Headers:
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
