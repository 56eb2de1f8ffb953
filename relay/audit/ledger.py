"""Requests of the outbox against the events that answer them.

A request is known by recipient and dedup key, since a duplicate is answered under the id of the notification that
stands. So many requests need so many answers.

Memory: about 300 bytes for each request that is not answered yet (in the first round: for each row that the outbox
still has), and as much for each answer that came before its request was read.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from relay.audit.book import Fact, refused
from schemas.records import EventType

ANSWERS = frozenset({EventType.ACCEPTED, EventType.DUPLICATE, EventType.CONFLICT})
CLOCKS_MS = 60_000
"""How far the clocks of the database and of the processor may be apart."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A request without an answer, and what else is known of it."""

    seq: int
    notification_id: str
    created_at: int
    waited_ms: int
    published: bool
    """The relay's cursor says so."""
    passed: bool
    """The processor has committed its input beyond the place where the published request must be."""
    set_aside: bool
    """It is in `rung.outbox_dead` or in `dead-letters`."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits for its answer."""

    seq: int
    since: int


def answers(fact: Fact) -> bool:
    """Whether an event answers a request."""
    return fact.type in ANSWERS or refused(fact)


def digest(recipient: str, dedup_key: str) -> int:
    """Recipient and key in 64 bits; the length keeps ("a", "bc") and ("ab", "c") apart."""
    name = f"{len(recipient)}:{recipient}{dedup_key}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest())


class Ledger:
    """Who waits for an answer. Rows and answers may come in any order."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[Waiting]] = {}
        self._early: Counter[int] = Counter()
        self._early_at: deque[tuple[int, int]] = deque()
        self._seen_at = 0

    def __len__(self) -> int:
        """How many requests wait."""
        return sum(map(len, self._waiting.values()))

    def snapshot(self, rows: Iterable[tuple[int, int]], now: int) -> None:
        """The rows (digest and number) that a snapshot taken at `now` shows for the first time.

        What was answered before that was committed before it, so an answer from then whose row has not come by now will
        never have one.
        """
        self._seen_at = now
        for key, seq in rows:
            if self._early[key] > 0:
                self._early[key] -= 1
            else:
                self._waiting.setdefault(key, deque()).append(Waiting(seq, now))
        while self._early_at and self._early_at[0][0] < now - CLOCKS_MS:
            _, key = self._early_at.popleft()
            self._early[key] = max(0, self._early[key] - 1)
        self._early = +self._early

    def answer(self, fact: Fact) -> None:
        """An event that answers a request."""
        key = digest(fact.event.recipient, fact.event.dedup_key)
        rows = self._waiting.get(key)
        if rows:
            rows.popleft()
            if not rows:
                del self._waiting[key]
        elif fact.event.at >= self._seen_at - CLOCKS_MS:
            self._early[key] += 1
            self._early_at.append((fact.event.at, key))

    def waiting(self, before: int) -> Iterator[Waiting]:
        """Requests that wait since before that moment."""
        for rows in self._waiting.values():
            yield from (row for row in rows if row.since < before)

    def settle(self, seqs: set[int]) -> None:
        """These rows have been told of, or were set aside: they wait no more."""
        for key in [k for k, rows in self._waiting.items() if any(row.seq in seqs for row in rows)]:
            left = deque(row for row in self._waiting[key] if row.seq not in seqs)
            if left:
                self._waiting[key] = left
            else:
                del self._waiting[key]
