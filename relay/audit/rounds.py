"""One round after the other: what is new in the outbox, the topic and the journal, held against the rules."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psycopg
import structlog
from psycopg.rows import TupleRow

from relay.audit import database
from relay.audit.book import Book, Fact
from relay.audit.config import AuditConfig
from relay.audit.database import Database, JournalRow, RowStanding, RowStream
from relay.audit.ledger import Ledger, Standing, answers, digest
from relay.audit.recount import Group, Recount, of_rows
from relay.audit.report import Report
from relay.audit.rules import (
    Stored,
    Violation,
    counters,
    journal_differs,
    look,
    open_overdue,
    outbox_unanswered,
    unnamed_after_stop,
)
from relay.audit.topic import EventTopic, Read
from relay.journal.events import FUTURE_LIMIT_MS, row_id
from schemas.topics import DAY_MS, HOUR_MS, MINUTE_MS

log = structlog.get_logger("rung.audit")


class Stopping(Exception):  # noqa: N818 - no error: the way out of a round when the service is told to stop
    """The service was told to stop in the middle of a round."""


@dataclass(slots=True)
class Partition:
    """How far one partition is audited."""

    book: Book
    next: int
    """The first offset that the rules have not seen."""
    compared: int
    """The first offset that was not compared with the journal; the journal may be behind."""
    compared_at: int = 0
    """Time of the newest event that was compared."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in `notifications` that the processor has to pass, and the published requests that lie before it."""

    ends: dict[int, int]
    seqs: frozenset[int]


@dataclass(slots=True)
class Comparison:
    """What was gathered while a stretch of one partition was compared; it counts once the stretch is done."""

    recount: Recount
    since: Recount
    groups: Counter[Group]
    newest_at: int = 0
    rows: int = 0


class Auditor:
    """Goes round. All of it runs in one thread."""

    def __init__(
        self, config: AuditConfig, found: Callable[[Iterable[Violation]], None], stop: threading.Event | None = None
    ) -> None:
        """`found` takes each violation once."""
        self._config = config
        self.found = found
        self._stop = stop or threading.Event()
        self._topic = EventTopic(config.kafka, config.naming)
        self._database = Database(config.database_url)
        self._partitions: dict[int, Partition] = {}
        self._truncated = False
        self._ledger = Ledger()
        self._seen: str | None = None
        self._mark: Mark | None = None
        self._now = 0
        self.checked: Counter[str] = Counter()
        self.recount = Recount()
        """Of all that was compared with the journal."""
        self.recount_since: int | None = None
        """Events from this moment on are recounted apart as well."""
        self.recounted_since = Recount()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()
        self._topic.__exit__(kind, error, trace)

    def disconnect(self) -> None:
        """Give up the connection to PostgreSQL; the next round makes another one."""
        self._database.close()

    @property
    def open(self) -> int:
        """Notifications that have not ended."""
        return sum(1 for p in self._partitions.values() for _ in p.book.open())

    @property
    def waiting(self) -> int:
        """Requests without an answer that were not judged yet."""
        return len(self._ledger)

    def tell(self, report: Report) -> None:
        """Fill in what was looked at."""
        report.checked, report.open, report.waiting = Counter(self.checked), self.open, self.waiting
        if behind := sum(p.next - p.compared for p in self._partitions.values()):
            report.notes.append(f"the journal is {behind} offsets behind the topic; these were not compared")

    def settled(self) -> bool:
        """Whether the journal stands where the last round saw it."""
        with self._database.snapshot() as connection:
            written = database.journal_offsets(connection, self._topic.name)
        return all(written.get(n, p.compared) <= p.compared for n, p in self._partitions.items())

    def round(self, *, requests: bool = True) -> None:
        """Read what is new and judge it; without `requests`, those of the outbox stay what they were.

        Raises:
            KafkaException, psycopg.Error: it was cut short; the next round goes on from there.
            Stopping: told to stop.
        """
        self._open_partitions()
        passed = self._mark is not None and self._topic.processed(self._mark.ends)
        if requests:
            self._read_requests()
        with self._database.snapshot() as connection:
            written = database.journal_offsets(connection, self._topic.name)
            floor = self._floor(written)
            ranges = {
                number: (p.compared, written[number])
                for number, p in self._partitions.items()
                if written.get(number, 0) > p.compared
            }
            rows = RowStream(database.journal_rows(connection, ranges, floor))
            self._now = now_ms()
            for number, partition in sorted(self._partitions.items()):
                self._audit(number, partition, ranges.get(number), rows, floor, connection)
        for partition in self._partitions.values():
            self.found(open_overdue(partition.book, self._now, self._config.tolerance_ms))
            self.found(unnamed_after_stop(partition.book, self._now, self._config.tolerance_ms))
        self._judge_requests(passed)

    # The topic and the journal

    def _open_partitions(self) -> None:
        for number in self._topic.partitions():
            low, high = self._topic.bounds(number)
            known = self._partitions.get(number)
            if known is None or high < known.next:
                if known is not None:
                    log.warning("topic_made_anew", partition=number, read=known.next, end=high)
                since = self._config.since
                start = low if since is None else self._topic.offset_at(number, since)
                self._partitions[number] = Partition(Book(whole=start == 0), start, start)
            self._truncated |= low > 0

    def _floor(self, written: dict[int, int]) -> int:
        """The time of the oldest events that topic and journal both hold for sure; after the first round, that of what
        can be new."""
        behind = [p.compared_at for n, p in self._partitions.items() if written.get(n, 0) > p.compared]
        fresh = min(behind, default=0) - HOUR_MS
        kept = (now_ms() // DAY_MS - self._config.retention_days + 1) * DAY_MS
        return max(0, kept, fresh, self._begin())

    def _begin(self) -> int:
        """The moment from which on the topic holds everything."""
        begin = self._config.since or 0
        if self._truncated and (retention := self._topic.retention_ms()) is not None:
            begin = max(begin, now_ms() - retention + MINUTE_MS)
        return begin

    def _audit(
        self,
        number: int,
        partition: Partition,
        range_: tuple[int, int] | None,
        rows: RowStream,
        floor: int,
        connection: psycopg.Connection[TupleRow],
    ) -> None:
        """Read one partition to its end: new events go to the rules, and those of `range_` are compared."""
        start, until = range_ or (partition.next, partition.next)
        # The journal's offsets were read before, and what it has read is committed: the end lies behind them.
        end = self._topic.bounds(number)[1]
        gathered = Comparison(Recount(), Recount(), Counter())

        def events() -> Iterator[Stored]:
            for read in self._topic.read(number, min(start, partition.next), end):
                if self._stop.is_set():
                    raise Stopping
                if read.offset >= partition.next:
                    self._look(partition, read)
                if start <= read.offset < until and (stored := self._stored(number, read, floor)) is not None:
                    self._gather(gathered, partition, read)
                    yield stored

        def journal() -> Iterator[Stored]:
            for row in rows.of(number):
                self._gather_row(gathered, row)
                yield row.stored

        found = list(journal_differs(events(), journal(), lambda event: database.holds(connection, event)))
        if range_ is None:
            return
        by = f"the journal (partition {number})"
        self.found([*found, *counters(gathered.recount.kinds, of_rows(gathered.groups), by)])
        self.checked["journal_rows"] += gathered.rows
        self.recount.merge(gathered.recount)
        self.recounted_since.merge(gathered.since)
        partition.compared = until
        partition.compared_at = max(partition.compared_at, gathered.newest_at)
        partition.book.repeats = {offset for offset in partition.book.repeats if offset >= until}

    def _look(self, partition: Partition, read: Read) -> None:
        partition.next = read.offset + 1
        fact = read.fact
        if fact is None:
            return
        begun = partition.book.begun
        self.found(look(partition.book, fact))
        self.checked["events"] += 1
        self.checked["notifications"] += partition.book.begun - begun
        if answers(fact) and fact.offset not in partition.book.repeats:
            self._ledger.answer(fact)

    def _stored(self, number: int, read: Read, floor: int) -> Stored | None:
        """An event as the journal must hold it; None where it need not."""
        fact = read.fact
        if fact is None or not read.storable or not floor <= fact.event.at <= self._now + FUTURE_LIMIT_MS:
            return None
        event = fact.event
        identity = row_id(fact.event_id)
        return Stored(number, read.offset, identity, event.at, fact.type.value, str(event.notification_id))

    def _gather(self, gathered: Comparison, partition: Partition, read: Read) -> None:
        fact: Fact | None = read.fact
        if fact is None or read.offset in partition.book.repeats:
            return
        gathered.newest_at = max(gathered.newest_at, fact.event.at)
        gathered.recount.add(fact)
        if self.recount_since is not None and fact.event.at >= self.recount_since:
            gathered.since.add(fact)

    def _gather_row(self, gathered: Comparison, row: JournalRow) -> None:
        gathered.rows += 1
        gathered.groups[row.group] += 1
        gathered.recount.events += 1
        if self.recount_since is not None and row.stored.at >= self.recount_since:
            gathered.since.events += 1

    # The outbox

    def _read_requests(self) -> None:
        """Take in the requests that were committed since the last round."""
        with self._database.snapshot() as connection:
            seen, _ = database.moment(connection)
            now = now_ms()
            found = [
                (digest(request.recipient, request.dedup_key), request.seq)
                for request in database.requests(connection, self._seen, self._begin())
            ]
        # Only now: a connection that breaks in between must not leave half of them here.
        self._seen = seen
        self._ledger.snapshot(found, now)
        self.checked["outbox_rows"] += len(found)

    def _judge_requests(self, passed: bool) -> None:
        """Judge what is past the watermark or has waited too long, and set the next mark if the last one was passed."""
        waiting = {row.seq: row.since for row in self._ledger.waiting(self._now)}
        if not waiting:
            self._mark = None
            return
        with self._database.snapshot() as connection:
            known = database.standing(connection, list(waiting))
        past = self._mark.seqs if self._mark is not None and passed else frozenset[int]()
        if self._mark is None or passed:
            ends = self._topic.request_ends()
            published = frozenset(row.seq for row in known if row.published and not row.dead and row.seq not in past)
            self._mark = Mark(ends, published) if ends is not None and published else None
        oldest = min((row.created_at or 0 for row in known), default=0) - MINUTE_MS
        suspects = [self._standing(row, waiting[row.seq], row.seq in past, row.dead) for row in known]
        if list(outbox_unanswered(suspects, self._config.settle_ms)):
            letters = self._topic.dead_requests(max(0, oldest))
            suspects = [
                self._standing(row, waiting[row.seq], row.seq in past, row.dead or row.id in letters) for row in known
            ]
        self.found(outbox_unanswered(suspects, self._config.settle_ms))
        late = self._config.settle_ms
        self._ledger.settle({r.seq for r in suspects if r.set_aside or r.passed or r.waited_ms >= late})

    def _standing(self, row: RowStanding, since: int, passed: bool, set_aside: bool) -> Standing:
        waited = self._now - since
        identity = row.notification_id or ""
        return Standing(row.seq, identity, row.created_at or 0, waited, row.published, passed, set_aside)


def now_ms() -> int:
    """The wall clock in milliseconds."""
    return time.time_ns() // 1_000_000
