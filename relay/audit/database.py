"""Reading the outbox and the journal, both in snapshots and as streams; nothing is written.

Memory: one batch of rows. The first round reads all rows that the outbox has, and all that the journal has, sorted by
the server; later ones read what is new: in the outbox by its index of transactions, in the journal the days concerned.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import psycopg
from psycopg.rows import TupleRow

from relay.audit.rules import Stored

BATCH = 2_000
CONNECT_SECONDS = 5

_NOW = "SELECT pg_current_snapshot()::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_COLUMNS = """
SELECT n.seq, n.aggregateid, n.payload ->> 'dedup_key', (extract(epoch FROM n.created_at) * 1000)::bigint
FROM rung.outbox n
"""
_WANTED = " AND n.type = 'rung.notify' AND n.created_at >= to_timestamp(%(floor)s::float8 / 1000)"
_ALL_REQUESTS = f"{_COLUMNS} WHERE true {_WANTED}"
_NEW_REQUESTS = f"""
{_COLUMNS} WHERE n.xid >= pg_snapshot_xmax(%(seen)s::text::pg_snapshot) {_WANTED}
UNION ALL
{_COLUMNS} WHERE n.xid = ANY (ARRAY(SELECT pg_snapshot_xip(%(seen)s::text::pg_snapshot))) {_WANTED}
"""
_STANDING = """
SELECT w.seq, coalesce(o.id, d.id)::text, coalesce(o.payload, d.payload) ->> 'notification_id',
       (extract(epoch FROM coalesce(o.created_at, d.created_at)) * 1000)::bigint,
       coalesce(pg_visible_in_snapshot(o.xid, c.seen), true), d.seq IS NOT NULL
FROM unnest(%s::bigint[]) AS w(seq)
LEFT JOIN rung.outbox o ON o.seq = w.seq
LEFT JOIN rung.outbox_cursor c ON c.bucket = o.bucket
LEFT JOIN rung.outbox_dead d ON d.seq = w.seq
"""
_OFFSETS = "SELECT partition, next_offset FROM rung.journal_offset WHERE topic = %s"
_ROWS = """
SELECT e.kafka_partition, e.kafka_offset, e.event_id::text, e.at, e.type, e.notification_id::text,
       e.kind, e.reason, e.channel, e.depth, CASE WHEN e.next_due_at IS NOT NULL THEN 0 END
FROM rung.delivery_event e
JOIN unnest(%(partitions)s::int[], %(starts)s::bigint[], %(ends)s::bigint[]) AS w(partition, start, until)
    ON e.kafka_partition = w.partition AND e.kafka_offset >= w.start AND e.kafka_offset < w.until
WHERE e.at >= %(floor)s
ORDER BY 1, 2
"""
_HOLDS = "SELECT EXISTS (SELECT FROM rung.delivery_event WHERE event_id = %s::uuid AND at = %s)"


class Request(NamedTuple):
    """A row of the outbox that asks for a notification."""

    seq: int
    recipient: str
    dedup_key: str
    created_at: int


class RowStanding(NamedTuple):
    """What the database knows of a row; only the number where its partition is gone, and then it was published."""

    seq: int
    id: str | None
    notification_id: str | None
    created_at: int | None
    published: bool
    dead: bool


@dataclass(frozen=True, slots=True)
class JournalRow:
    """A row of the journal, and what the counters are made of."""

    stored: Stored
    group: tuple[str, str, str, str | None, int | None, int | None]
    """Kind, type, reason, channel, depth, and 0 if more is due: what `relay.journal.totals.count` sums up."""


class Database:
    """One connection that is opened when needed. Not for several threads."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[TupleRow] | None = None

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def snapshot(self) -> Iterator[psycopg.Connection[TupleRow]]:
        """One reading transaction, in which all statements see the same."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._url, application_name="rung audit", client_encoding="utf8", connect_timeout=CONNECT_SECONDS
            )
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._connection.read_only = True
        with self._connection.transaction():
            yield self._connection


def moment(connection: psycopg.Connection[TupleRow]) -> tuple[str, int]:
    """The transaction's snapshot, and the database's clock in milliseconds."""
    row = connection.execute(_NOW).fetchone()
    assert row is not None  # noqa: S101 - it always has one
    return str(row[0]), int(row[1])


def requests(connection: psycopg.Connection[TupleRow], seen: str | None, floor: int) -> Iterator[Request]:
    """The requests created since `floor` (milliseconds) that an earlier snapshot did not show; all, without one."""
    query = _ALL_REQUESTS if seen is None else _NEW_REQUESTS
    with connection.cursor("audit_requests") as cursor:
        cursor.itersize = BATCH
        cursor.execute(query, {"seen": seen, "floor": floor})
        for row in cursor:
            yield Request(row[0], row[1], row[2] or "", row[3])


def standing(connection: psycopg.Connection[TupleRow], seqs: list[int]) -> list[RowStanding]:
    """What is known of these rows."""
    return [RowStanding(*row) for row in connection.execute(_STANDING, (seqs,)).fetchall()]


def journal_offsets(connection: psycopg.Connection[TupleRow], topic: str) -> dict[int, int]:
    """How far the journal has written each partition of the topic."""
    return {int(row[0]): int(row[1]) for row in connection.execute(_OFFSETS, (topic,)).fetchall()}


def journal_rows(
    connection: psycopg.Connection[TupleRow], ranges: Mapping[int, tuple[int, int]], floor: int
) -> Iterator[JournalRow]:
    """The journal's rows of these ranges of offsets (the end excluded), by partition and offset."""
    if not ranges:
        return
    with connection.cursor("audit_journal") as cursor:
        cursor.itersize = BATCH
        parameters = {
            "partitions": list(ranges),
            "starts": [start for start, _ in ranges.values()],
            "ends": [end for _, end in ranges.values()],
            "floor": floor,
        }
        cursor.execute(_ROWS, parameters)
        for row in cursor:
            stored = Stored(row[0], row[1], row[2], row[3], row[4], row[5])
            yield JournalRow(stored, (row[6], row[4], row[7], row[8], row[9], row[10]))


def holds(connection: psycopg.Connection[TupleRow], event: Stored) -> bool:
    """Whether the journal has an event, wherever."""
    row = connection.execute(_HOLDS, (event.event_id, event.at)).fetchone()
    return row is not None and bool(row[0])


class RowStream:
    """Rows in the order of their partitions, handed out partition by partition."""

    def __init__(self, rows: Iterable[JournalRow]) -> None:
        self._rows = iter(rows)
        self._head = next(self._rows, None)

    def of(self, partition: int) -> Iterator[JournalRow]:
        """The rows of one partition; ask for partitions in ascending order."""
        while self._head is not None and self._head.stored.partition <= partition:
            row, self._head = self._head, next(self._rows, None)
            if row.stored.partition == partition:
                yield row
