"""Partitions: add ahead of need, drop behind what is published. A thread of its own, for detaching may wait long.

A partition may go when every row that it has or will ever have is published. It is full once the sequence has passed
its end. The next transaction id at that moment (`full_xid`) bounds the transactions that wrote to it, and when every
bucket's stored `cursor_xid` has reached it, all of those are over and published. One gap is left: a writer draws the
number a moment before its transaction gets an id, and could be frozen in between. So after the partition is detached
(which waits for every writer that still has it open) rows with an id from `full_xid` on are looked for once more, and
put into the outbox again.

The steps are taken from what is found, so one that was interrupted is taken up again: a pending detach is finished,
and a detached table that is still listed is checked and dropped.
"""

import threading
from typing import LiteralString

import psycopg
import structlog
from psycopg import sql
from psycopg.rows import TupleRow

from relay.outbox.config import OutboxConfig
from relay.outbox.store import connect

_LOG = structlog.get_logger("rung.outbox")
_LOCK = 8206170491304
_STATEMENT_LIMIT = "20s"
_LOCK_LIMIT = "2s"

_NOTE_FULL = """
UPDATE rung.outbox_partition SET full_xid = pg_snapshot_xmax(pg_current_snapshot())
WHERE full_xid IS NULL AND to_seq <= %s
"""
_PUBLISHED = """
SELECT p.name, coalesce(i.inhdetachpending, false), i.inhrelid IS NOT NULL
FROM rung.outbox_partition p
LEFT JOIN pg_catalog.pg_inherits i
    ON i.inhparent = 'rung.outbox'::regclass AND i.inhrelid = to_regclass(format('rung.%I', p.name))
WHERE p.full_xid <= (SELECT min(c.cursor_xid) FROM rung.outbox_cursor c)
ORDER BY p.from_seq
"""
_RESCUE = """
WITH late AS (
    INSERT INTO rung.outbox (id, aggregatetype, aggregateid, type, payload, created_at)
    SELECT o.id, o.aggregatetype, o.aggregateid, o.type, o.payload, o.created_at
    FROM {table} o
    WHERE o.xid >= (SELECT p.full_xid FROM rung.outbox_partition p WHERE p.name = {name})
    ORDER BY o.seq
    RETURNING 1
)
SELECT count(*) FROM late
"""


class Upkeep(threading.Thread):
    """Looks after the partitions until `stop` is set."""

    def __init__(self, config: OutboxConfig, stop: threading.Event) -> None:
        super().__init__(name="outbox-upkeep", daemon=True)
        self._config = config
        self._stop_event = stop
        self._refused = False
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Look once at the start, and then every `upkeep_seconds`."""
        try:
            while True:
                self._try()
                if self._stop_event.wait(self._config.upkeep_seconds):
                    return
        except BaseException as error:
            self._failure = error

    def check(self) -> None:
        """Return if the thread is well.

        Raises:
            BaseException: what ended it. Without it the table would grow for ever, and in the end take no more rows.
        """
        if self._failure is not None:
            raise self._failure

    def _try(self) -> None:
        try:
            added, dropped = keep_partitions(
                self._config.database_url, self._config.partitions_ahead, self._config.partition_rows
            )
        except psycopg.errors.InsufficientPrivilege:
            if not self._refused:
                _LOG.warning("partitions_not_dropped", why="only the owner of rung.outbox can drop its partitions")
            self._refused = True
        except psycopg.Error as error:
            _LOG.warning("upkeep_failed", error=type(error).__name__)
        else:
            if added or dropped:
                _LOG.info("partitions_kept", added=added, dropped=dropped)


def keep_partitions(database_url: str, ahead: int, rows: int) -> tuple[int, list[str]]:
    """Add partitions of so many rows ahead of the sequence, and drop those that are published.

    Returns how many were added, and the names of those dropped; nothing is dropped while another replica is at it.

    Raises:
        psycopg.Error: the database cannot be reached, or refuses; what is left is taken up again the next time.
    """
    with connect(database_url, "rung outbox upkeep") as connection:
        connection.execute(f"SET statement_timeout = '{_STATEMENT_LIMIT}'; SET lock_timeout = '{_LOCK_LIMIT}'")
        added = _one(connection, "SELECT rung.outbox_add_partitions(%s, %s)", (ahead * rows, rows))
        if not _one(connection, "SELECT pg_try_advisory_lock(%s)", (_LOCK,)):
            return added, []
        # First the number, then a snapshot: the other way round, a transaction that starts in between would be missed.
        last_seq = _one(connection, "SELECT last_value FROM rung.outbox_seq", ())
        connection.execute(_NOTE_FULL, (last_seq,))
        found = connection.execute(_PUBLISHED).fetchall()
        return added, [name for name, pending, attached in found if _drop(connection, name, pending, attached)]


def _drop(connection: psycopg.Connection[TupleRow], name: str, pending: bool, attached: bool) -> bool:
    table = sql.Identifier("rung", name)
    if attached:
        how = sql.SQL("FINALIZE" if pending else "CONCURRENTLY")
        connection.execute(
            "SET lock_timeout = 0"
        )  # A detach that gives up half-way stays pending; let it wait its time.
        connection.execute(sql.SQL("ALTER TABLE rung.outbox DETACH PARTITION {} {}").format(table, how))
        connection.execute(f"SET lock_timeout = '{_LOCK_LIMIT}'")
    with connection.transaction():
        rescued = _one(connection, sql.SQL(_RESCUE).format(table=table, name=sql.Literal(name)), ())
        connection.execute(sql.SQL("DROP TABLE {}").format(table))
        connection.execute("DELETE FROM rung.outbox_partition WHERE name = %s", (name,))
    if rescued:
        _LOG.warning("late_rows_rescued", partition=name, rows=rescued)
    return True


def _one(
    connection: psycopg.Connection[TupleRow], query: LiteralString | sql.Composed, parameters: tuple[object, ...]
) -> int:
    (row,) = connection.execute(query, parameters).fetchall()
    return int(row[0])
