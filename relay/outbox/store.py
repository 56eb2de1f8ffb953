"""The relay's connection to PostgreSQL: one statement per call, each in a transaction of its own."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import psycopg
from psycopg.rows import TupleRow

from relay.outbox import queries
from relay.outbox.domain import BUCKETS, Group, Position
from relay.outbox.records import MAX_VALUE_BYTES, Row
from schemas.reasons import DeadReason

CONNECT_SECONDS = 5
_DETAIL_LIMIT = 500
_MOST_SPANS = 8


class Dead(NamedTuple):
    """A row to set aside."""

    seq: int
    reason: DeadReason
    detail: str


@dataclass(frozen=True, slots=True)
class Page:
    """What was read for one group."""

    group: Group
    snapshot: str
    """The snapshot of the statement; of a walk, the one that its long read is in."""
    rows: list[Row]
    """In sequence."""
    last_seq: int | None
    """Up to where it was read, if there may be more."""


def connect(database_url: str, name: str) -> psycopg.Connection[TupleRow]:
    """A connection that notices within seconds if its server is gone.

    Raises:
        psycopg.OperationalError: there is no server, or it refuses.
    """
    return psycopg.connect(
        database_url,
        autocommit=True,
        application_name=name,
        client_encoding="utf8",
        connect_timeout=CONNECT_SECONDS,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=10_000,
    )


class Store:
    """Reads the outbox and keeps the positions of one replica's buckets."""

    def __init__(self, database_url: str, replica: UUID) -> None:
        self._database_url = database_url
        self._replica = replica
        self._connection: psycopg.Connection[TupleRow] | None = None

    def connect(self) -> None:
        """Connect, or connect again."""
        self.close()
        connection = connect(self._database_url, "rung outbox")
        connection.execute(queries.SESSION)
        connection.prepare_threshold = 0
        self._connection = connection

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known here."""
        return self._connection is not None and not self._connection.closed

    def cancel(self) -> None:
        """Ask the server to give up what it does for this connection; may be called from another thread."""
        if self._connection is not None and not self._connection.closed:
            with contextlib.suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=CONNECT_SECONDS)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def read(self, groups: Sequence[Group], rows: int, payload_bytes: int) -> list[Page]:
        """The next rows of each group, all in one snapshot: at most about so many rows and bytes in total."""
        if not groups:
            return []
        each_rows, each_bytes = max(1, rows // len(groups)), max(1, payload_bytes // len(groups))
        parameters = {
            "numbers": list(range(len(groups))),
            "buckets": ["{" + ",".join(map(str, g.buckets)) + "}" for g in groups],
            "seen": [g.position.seen for g in groups],
            "until": [g.position.until for g in groups],
            "after": [g.position.after for g in groups],
            "rows": each_rows,
            "bytes": each_bytes,
            "max_value": MAX_VALUE_BYTES,
        }
        (head, *found) = self._open().execute(queries.READ, parameters, binary=True).fetchall()
        by_group: list[list[Row]] = [[] for _ in groups]
        for values in found:
            by_group[values[0]].append(Row._make(values))
        pages = []
        for group, of_group in zip(groups, by_group, strict=True):
            cut = bool(of_group) and (of_group[0].fetched == each_rows or len(of_group) < of_group[0].fetched)
            pages.append(Page(group, head[9], of_group, of_group[-1].seq if cut else None))
        return pages

    def walk(self, group: Group, rows: int, payload_bytes: int) -> Page:
        """The next page of a group's long read, from a stretch of the table that may hold about so many of its rows."""
        position = group.position
        span = min(rows * BUCKETS // len(group.buckets), _MOST_SPANS * rows)
        parameters = {
            "buckets": list(group.buckets),
            "seen": position.seen,
            "until": position.until,
            "after": position.after,
            "span": span,
            "bytes": payload_bytes,
            "max_value": MAX_VALUE_BYTES,
        }
        found = self._open().execute(queries.WALK, parameters, binary=True).fetchall()
        page = [*map(Row._make, found)]
        last_seq: int | None = None
        if page and page[-1].fetched == span:
            # What ends a whole stretch is there whether it is of the page or not.
            last_seq = page[-1].seq
            if page[-1].group < 0:
                page.pop()
        if sum(min(row.size, MAX_VALUE_BYTES) for row in page) >= payload_bytes:
            last_seq = page[-1].seq
        return Page(group, position.until or "", page, last_seq)

    def bury(self, dead: Sequence[Dead]) -> set[int]:
        """Copy rows to `outbox_dead`; returns those that were not there yet."""
        parameters = {
            "seq": [d.seq for d in dead],
            "reason": [d.reason.value for d in dead],
            "detail": [d.detail[:_DETAIL_LIMIT].replace("\0", "\ufffd") for d in dead],
        }
        return {seq for (seq,) in self._open().execute(queries.BURY, parameters).fetchall()}

    def save(self, positions: Mapping[int, Position], epochs: Mapping[int, int], release: bool = False) -> set[int]:
        """Store positions, and give the buckets back if `release`; returns those that were still this replica's."""
        parameters = {
            "replica": self._replica,
            "release": release,
            "bucket": list(positions),
            "epoch": [epochs[bucket] for bucket in positions],
            "seen": [p.seen for p in positions.values()],
            "until": [p.until for p in positions.values()],
            "after": [p.after for p in positions.values()],
        }
        return {bucket for (bucket,) in self._open().execute(queries.SAVE, parameters).fetchall()}

    def holder(self, xid: int) -> tuple[int, float] | None:
        """The server process and the age in seconds of a transaction, if it may be seen."""
        row = self._open().execute(queries.HOLDER, {"xid": str(xid)}).fetchone()
        return None if row is None else (row[0], row[1])

    def _open(self) -> psycopg.Connection[TupleRow]:
        if self._connection is None:
            raise psycopg.OperationalError("not connected")
        return self._connection
