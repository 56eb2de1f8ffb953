"""Which buckets this replica may publish: leases, renewed and shared out by a thread of its own.

Each replica keeps one row alive in `rung.outbox_replica`, under an id that is used once. A bucket belongs to the
replica that `rung.outbox_cursor.owner` names, as long as that one's row exists. A replica whose row has expired is
removed by another; from then on it finds no row to renew, and its buckets can be taken, which moves their epoch on.
Every write of a position carries owner and epoch and changes nothing if either moved.

Renewing and removing lock the row and look again, so one of them wins. Sharing out happens under an advisory lock, one
replica at a time; a replica that holds too many gives back only what it has no open rows of.

A replica must not publish when another may. It counts its lease on the monotonic clock from *before* it asked for it,
and ends it by a margin early: then it drops what Kafka has not acknowledged, from a thread that does nothing else, so
a blocked statement or a full queue does not matter. What is left is a request that is already in a socket when the
margin ends, or a process that was frozen and wakes up. Neither loses or reorders anything: the position of such a row
was never stored, so the new owner publishes it too, and the order in which rows first appear holds for any overlap of
two replicas (see `domain`). The lease keeps repeats few; it is not what order rests on.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import psycopg
import structlog
from psycopg.rows import TupleRow

from relay.outbox import queries
from relay.outbox.config import OutboxConfig
from relay.outbox.domain import Position, fair_share
from relay.outbox.store import connect

_LOG = structlog.get_logger("rung.outbox")


class LeaseLostError(Exception):
    """Another replica may hold the buckets now: stop, and join again as a new replica."""


class RestoredDatabaseError(RuntimeError):
    """The stored positions are of another cluster: its transaction ids mean nothing here."""


class Lease(NamedTuple):
    """A bucket that this replica holds, as the database said last."""

    epoch: int
    position: Position


@dataclass(frozen=True, slots=True)
class Share:
    """What this replica holds, as of the last round of sharing out."""

    leases: Mapping[int, Lease]
    surplus: frozenset[int]
    """Of these: to be given back. Read no more of them, and release each when it has no open rows."""


class Leases:
    """Joins the replicas, keeps the lease alive, and says what to take and what to give back."""

    def __init__(self, config: OutboxConfig, replica: UUID, on_expired: Callable[[], None]) -> None:
        self._config = config
        self._replica = replica
        self._on_expired = on_expired
        self._share = Share({}, frozenset())
        self._deadline = 0.0
        self._lost: str | None = None
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._connection: psycopg.Connection[TupleRow] | None = None
        self._threads = [
            threading.Thread(target=self._run, name="outbox-leases", daemon=True),
            threading.Thread(target=self._watch, name="outbox-lease-watch", daemon=True),
        ]

    def join(self) -> None:
        """Become a replica and begin to take buckets.

        Raises:
            psycopg.Error: the database cannot be reached, or refuses.
        """
        before = time.monotonic()
        self._connect().execute(
            queries.JOIN,
            {"replica": self._replica, "name": self._config.replica, "lease": self._config.lease_seconds},
        )
        self._extend(before)
        self._share_out()
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Return if this replica may publish now.

        Raises:
            LeaseLostError: it may not.
            RestoredDatabaseError, psycopg.Error: what ended the thread.
        """
        if self._failure is not None:
            raise self._failure
        if self._lost is not None or time.monotonic() >= self._deadline:
            raise LeaseLostError(self._lost or "not renewed in time")

    @property
    def share(self) -> Share:
        """What this replica holds. It may still name a bucket that was released since, under the same epoch."""
        return self._share

    def leave(self) -> None:
        """Stop renewing and, if the database answers, tell the others; what was not released can be taken now."""
        self._ended.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        try:
            self._connect().execute(queries.LEAVE, {"replica": self._replica})
        except psycopg.Error:
            _LOG.info("lease_left_to_expire", replica=str(self._replica))
        self._close()

    def _run(self) -> None:
        while not self._ended.wait(self._config.renew_seconds):
            try:
                self._renew()
                self._share_out()
            except psycopg.OperationalError as error:
                _LOG.warning("lease_not_renewed", error=type(error).__name__)
                self._close()
            except LeaseLostError as lost:
                self._lost = str(lost)
            except (RestoredDatabaseError, psycopg.Error) as error:
                self._failure = error
            if self._failure is not None or self._lost is not None:
                self._on_expired()
                return

    def _watch(self) -> None:
        """End the lease in time, whatever statement the other threads are waiting for."""
        while not self._ended.wait(max(0.0, self._deadline - time.monotonic())):
            if time.monotonic() >= self._deadline:
                self._lost = self._lost or "not renewed in time"
                self._on_expired()
                return

    def _renew(self) -> None:
        before = time.monotonic()
        parameters = {"replica": self._replica, "lease": self._config.lease_seconds}
        if self._connect().execute(queries.RENEW, parameters).fetchone() is None:
            raise LeaseLostError("another replica found it expired")
        self._extend(before)

    def _extend(self, before: float) -> None:
        self._deadline = before + self._config.lease_seconds - self._config.lease_margin_seconds

    def _share_out(self) -> None:
        connection = self._connect()
        with connection.transaction():
            locked = connection.execute(queries.TRY_LOCK).fetchone()
            if locked is None or not locked[0]:
                return
            for gone, name in connection.execute(queries.REAP).fetchall():
                _LOG.warning("replica_expired", replica=gone, name=name)
            replicas = [row[0] for row in connection.execute(queries.REPLICAS).fetchall()]
            if str(self._replica) not in replicas:
                raise LeaseLostError("another replica found it expired")
            share = fair_share(str(self._replica), replicas)
            owned = self._owned(connection)
            claimed = len(owned) < share
            if claimed:
                self._config.at("outbox.lease.before")
                self._claim(connection, share - len(owned))
                owned = self._owned(connection)
        # Only what was committed counts; if the answer to a commit is lost, the next round reads what it did.
        self._share = Share(owned, frozenset(sorted(owned)[share:]))
        if claimed:
            self._config.at("outbox.lease.after")

    def _owned(self, connection: psycopg.Connection[TupleRow]) -> dict[int, Lease]:
        rows = connection.execute(queries.OWNED, {"replica": self._replica}).fetchall()
        return {bucket: Lease(epoch, Position(seen, until, after)) for bucket, epoch, seen, until, after in rows}

    def _claim(self, connection: psycopg.Connection[TupleRow], count: int) -> None:
        rows = connection.execute(queries.CLAIM, {"replica": self._replica, "count": count}).fetchall()
        if any(ahead for _bucket, ahead in rows):
            raise RestoredDatabaseError(
                "rung.outbox_cursor is ahead of this server's transactions: the database was copied from another "
                "server as SQL; see the runbook's heading RestoredDatabase before the relay may start"
            )

    def _connect(self) -> psycopg.Connection[TupleRow]:
        if self._connection is None or self._connection.closed:
            connection = connect(self._config.database_url, "rung outbox leases")
            limit = int(self._config.lease_margin_seconds * 1000)
            connection.execute(f"SET statement_timeout = {limit}")
            connection.execute(f"SET idle_in_transaction_session_timeout = {limit}")
            self._connection = connection
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
