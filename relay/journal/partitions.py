"""The journal's day partitions: made before they are needed, dropped whole when their retention is over.

Both ways avoid the lock that would stop readers and writers: a partition is made beside the table and then attached,
and it is detached concurrently before it is dropped. A detach that was cut off is finished at the next time.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import psycopg
from psycopg import sql

from schemas.topics import DAY_MS

TABLE = "delivery_event"
LOCK = 5_048_650
"""An advisory lock's number: one replica at a time changes partitions."""
WAIT_LIMIT = "5s"
"""How long dropping waits for a long query of someone else before it leaves the rest to the next time."""

Connection = psycopg.Connection[tuple[object, ...]]

_PARTITIONS = """
SELECT c.relname, i.inhrelid IS NOT NULL AS attached, coalesce(i.inhdetachpending, false)
FROM pg_class AS c LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid AND i.inhparent = 'rung.delivery_event'::regclass
WHERE c.relnamespace = 'rung'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^delivery_event_[0-9]{8}$'
ORDER BY c.relname
"""


def name_of(day: int) -> str:
    """The partition's name of a day counted from the epoch."""
    return f"{TABLE}_{datetime.fromtimestamp(day * DAY_MS / 1000, UTC):%Y%m%d}"


def oldest_day(now: int, retention_days: int) -> int:
    """The first day that is kept at `now` (milliseconds)."""
    return now // DAY_MS - retention_days


def ensure(connection: Connection, days: Iterable[int]) -> list[str]:
    """Make the partitions of these days that are missing, and return their names."""
    made = []
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        known = {str(row[0]) for row in connection.execute(_PARTITIONS).fetchall() if row[1] and not row[2]}
        for day in sorted(set(days)):
            name = name_of(day)
            if name not in known:
                _make(connection, name, day)
                made.append(name)
    return made


def _make(connection: Connection, name: str, day: int) -> None:
    table, parent = sql.Identifier("rung", name), sql.Identifier("rung", TABLE)
    connection.execute(sql.SQL("CREATE TABLE {} (LIKE {})").format(table, parent))
    connection.execute(
        sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
            parent, table, sql.Literal(day * DAY_MS), sql.Literal((day + 1) * DAY_MS)
        )
    )


def drop_before(connection: Connection, day: int) -> list[str]:
    """Drop the partitions of all days before `day` and return their names; a connection in autocommit mode.

    A partition that a long query still reads is left to the next time.
    """
    if not _first(connection, "SELECT pg_try_advisory_lock(%s)", LOCK):
        return []
    dropped = []
    try:
        connection.execute(sql.SQL("SET statement_timeout = {}").format(sql.Literal(WAIT_LIMIT)))
        for name, attached, pending in connection.execute(_PARTITIONS).fetchall():
            if str(name) < name_of(day) and _drop(connection, str(name), bool(attached), bool(pending)):
                dropped.append(str(name))
    finally:
        if not connection.closed:
            connection.execute("RESET statement_timeout")
            connection.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))
    return dropped


def _drop(connection: Connection, name: str, attached: bool, pending: bool) -> bool:
    table, parent = sql.Identifier("rung", name), sql.Identifier("rung", TABLE)
    try:
        if attached:
            how = sql.SQL("FINALIZE" if pending else "CONCURRENTLY")
            connection.execute(sql.SQL("ALTER TABLE {} DETACH PARTITION {} {}").format(parent, table, how))
        connection.execute(sql.SQL("DROP TABLE {}").format(table))
    except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable):
        return False
    return True


def _first(connection: Connection, query: str, *values: object) -> object:
    row = connection.execute(query.encode(), values).fetchone()
    return None if row is None else row[0]
