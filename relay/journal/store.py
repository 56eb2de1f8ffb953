"""The journal's writes: offsets and events in one transaction, fenced by the offsets."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from relay.journal.events import COLUMNS, Entry
from relay.journal.faults import Fault, classify

CONNECT: dict[str, Any] = {
    "application_name": "rung-journal",
    "connect_timeout": 5,
    # A server that vanished without a word is noticed after about half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}

_OPEN_POSITIONS = """
INSERT INTO rung.journal_offset (topic, partition, next_offset)
SELECT %(topic)s, p, 0 FROM unnest(%(partitions)s::int[]) AS p
ON CONFLICT DO NOTHING
"""
_POSITIONS = "SELECT partition, next_offset FROM rung.journal_offset WHERE topic = %s AND partition = ANY(%s)"
_ADVANCE = """
WITH wanted AS (
    SELECT * FROM unnest(%(partitions)s::int[], %(expected)s::bigint[], %(next)s::bigint[])
        AS w (partition, expected, next)
), held AS (
    -- In one order, so that two writers wait for each other and never in a circle.
    SELECT o.partition FROM rung.journal_offset AS o
    WHERE o.topic = %(topic)s AND o.partition = ANY(%(partitions)s::int[])
    ORDER BY o.partition FOR UPDATE
)
UPDATE rung.journal_offset AS o SET next_offset = w.next, updated_at = now()
FROM wanted AS w JOIN held USING (partition)
WHERE o.topic = %(topic)s AND o.partition = w.partition AND o.next_offset = w.expected
"""
_COPY = f"COPY rung.delivery_event ({', '.join(COLUMNS)}) FROM STDIN"
_INSERT = (
    f"INSERT INTO rung.delivery_event ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))}) "  # noqa: S608
    "ON CONFLICT DO NOTHING RETURNING kafka_partition, kafka_offset"
)


class FencedError(RuntimeError):
    """Another writer has moved an offset since this one read it; nothing was written."""


class Store:
    """One connection that is opened when needed and again after it broke. Not for several threads."""

    def __init__(self, database_url: str, topic: str) -> None:
        self._url = database_url
        self._topic = topic
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    def connection(self) -> psycopg.Connection[tuple[object, ...]]:
        """The connection, opened if it is not open (autocommit: each transaction says where it begins)."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, autocommit=True, row_factory=tuple_row, **CONNECT)
        return self._connection

    def disconnect(self) -> None:
        """Close the connection; the next use opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def positions(self, partitions: Sequence[int]) -> dict[int, int]:
        """The next offset of each partition: 0 where nothing was read yet."""
        wanted = list(partitions)
        with self.connection().transaction():
            self.connection().execute(_OPEN_POSITIONS, {"topic": self._topic, "partitions": wanted})
            rows = self.connection().execute(_POSITIONS, (self._topic, wanted)).fetchall()
        return {int(str(partition)): int(str(offset)) for partition, offset in rows}

    def write(
        self,
        entries: Sequence[Entry],
        expected: Mapping[int, int],
        next_offsets: Mapping[int, int],
        refuse: Callable[[list[tuple[Entry, psycopg.Error]]], None],
    ) -> list[Entry]:
        """Write events and move the offsets from `expected` to `next_offsets`, or do neither.

        `refuse` is called inside the transaction with the events that PostgreSQL does not take, before their offsets
        move.

        Returns:
            The events that were new.

        Raises:
            FencedError: another writer has moved one of the offsets.
            psycopg.Error: of another fault than the record's; nothing was written unless the commit itself broke.
        """
        ways: list[Callable[[], list[Entry]]] = [lambda: self._copy(entries), lambda: self._insert(entries)]
        for way in ways if entries else ():
            try:
                # Each way in a transaction of its own: one around them all, with a savepoint, would be two more turns
                # to the server for every batch, and hardly a batch needs the second way.
                with self.connection().transaction():
                    self._advance(expected, next_offsets)
                    return way()
            except psycopg.Error as error:
                if classify(error) is not Fault.RECORD:
                    raise
        with self.connection().transaction():
            self._advance(expected, next_offsets)
            return self._one_by_one(entries, refuse)

    def _advance(self, expected: Mapping[int, int], next_offsets: Mapping[int, int]) -> None:
        partitions = sorted(next_offsets)
        moved = self.connection().execute(
            _ADVANCE,
            {
                "topic": self._topic,
                "partitions": partitions,
                "expected": [expected[p] for p in partitions],
                "next": [next_offsets[p] for p in partitions],
            },
        )
        if moved.rowcount != len(partitions):
            raise FencedError(f"{len(partitions) - moved.rowcount} of partitions {partitions} have moved on")

    def _copy(self, entries: Sequence[Entry]) -> list[Entry]:
        """The fast way: it fails as a whole where one event was written before or cannot be written."""
        with self.connection().cursor() as cursor, cursor.copy(_COPY) as copy:
            for entry in entries:
                copy.write_row(entry.row())
        return list(entries)

    def _insert(self, entries: Sequence[Entry]) -> list[Entry]:
        """The way past repeats: it fails as a whole where one event cannot be written."""
        with self.connection().cursor() as cursor:
            cursor.executemany(_INSERT, [entry.row() for entry in entries], returning=True)
            written = [bool(cursor.fetchall())]
            while cursor.nextset():
                written.append(bool(cursor.fetchall()))
        return [entry for entry, new in zip(entries, written, strict=True) if new]

    def _one_by_one(
        self, entries: Sequence[Entry], refuse: Callable[[list[tuple[Entry, psycopg.Error]]], None]
    ) -> list[Entry]:
        """The way past what PostgreSQL refuses."""
        new: list[Entry] = []
        refused: list[tuple[Entry, psycopg.Error]] = []
        for entry in entries:
            try:
                with self.connection().transaction():
                    if self.connection().execute(_INSERT, entry.row()).fetchall():
                        new.append(entry)
            except psycopg.Error as error:
                if classify(error) is not Fault.RECORD:
                    raise
                refused.append((entry, error))
        if refused:
            refuse(refused)
        return new
