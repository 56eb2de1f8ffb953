"""The API's statements: the four functions of the SQL contract, and reads of the journal."""

from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import TupleRow, tuple_row
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

from relay.api.config import ApiConfig
from relay.journal.query import EVENTS_BY_ID, ID_BY_KEY, events_of
from relay.journal.status import Happened

_NOTIFY = "SELECT rung.notify(%s, %s, %s, %s, %s)"
_READY = """
SELECT to_regprocedure('rung.erase_recipient(text)') IS NOT NULL AND to_regclass('rung.delivery_event') IS NOT NULL
"""
Connection = AsyncConnection[TupleRow]
Pool = AsyncConnectionPool[Connection]


def make_pool(config: ApiConfig) -> Pool:
    """A pool that is not open yet; a connection that broke is noticed before it is handed out."""
    return AsyncConnectionPool(
        config.database_url,
        connection_class=AsyncConnection[TupleRow],
        min_size=1,
        max_size=config.pool_size,
        timeout=config.database_wait_seconds,
        kwargs={"application_name": "rung-api", "connect_timeout": 5, "autocommit": True, "row_factory": tuple_row},
        check=AsyncConnectionPool.check_connection,
        open=False,
    )


async def notify(
    pool: Pool, recipient: str, kind: str, data: dict[str, Any], dedup_key: str, expires_at: datetime | None
) -> tuple[UUID, bool]:
    """Ask for a notification.

    Returns:
        Its id, and whether the journal knows it already. A repeat is written all the same: only the processor can
        tell it from a conflict.
    """
    async with pool.connection() as connection, connection.transaction():
        found = await connection.execute(ID_BY_KEY, {"recipient": recipient, "dedup_key": dedup_key})
        known = await found.fetchone()
        made = await connection.execute(_NOTIFY, (recipient, kind, Jsonb(data), dedup_key, expires_at))
        row = await made.fetchone()
    assert row is not None  # noqa: S101 - a function call has one row
    return (known or row)[0], known is not None


async def resolve(pool: Pool, recipient: str, dedup_key: str, resolution: str) -> None:
    """Say that the person acted."""
    await _call(pool, "SELECT rung.resolve(%s, %s, %s)", (recipient, dedup_key, resolution))


async def put_recipient(pool: Pool, recipient: str, profile: bytes) -> None:
    """Replace a profile; it is passed on as it came."""
    await _call(pool, "SELECT rung.put_recipient(%s, %s::jsonb)", (recipient, profile.decode()))


async def erase_recipient(pool: Pool, recipient: str) -> None:
    """Forget a person."""
    await _call(pool, "SELECT rung.erase_recipient(%s)", (recipient,))


async def _call(pool: Pool, query: str, values: tuple[Any, ...]) -> None:
    async with pool.connection() as connection, connection.transaction():
        await connection.execute(query.encode(), values)


async def events(pool: Pool, notification_id: UUID, recipient: str | None = None) -> list[Happened]:
    """The journal's events of one notification; see `events_of`."""
    async with pool.connection() as connection:
        found = await connection.execute(EVENTS_BY_ID.encode(), (notification_id,))
        return events_of(await found.fetchall(), recipient)


async def find(pool: Pool, recipient: str, dedup_key: str) -> UUID | None:
    """The id of the notification that was last accepted with this recipient and dedup key."""
    async with pool.connection() as connection:
        found = await connection.execute(ID_BY_KEY, {"recipient": recipient, "dedup_key": dedup_key})
        row = await found.fetchone()
    return row[0] if row else None


async def ready(pool: Pool) -> bool:
    """Whether the database answers and has our tables and functions."""
    async with pool.connection(timeout=2) as connection:
        row = await (await connection.execute(_READY)).fetchone()
    return bool(row and row[0])
