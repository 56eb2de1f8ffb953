"""What the journal costs the database, in counts that are the same on every machine."""

from __future__ import annotations

import uuid
from typing import Any
from unittest.mock import sentinel

import psycopg

from relay.journal import partitions
from relay.journal.config import JournalConfig
from relay.journal.events import Entry
from relay.journal.store import Store
from schemas.records import EventType
from schemas.topics import DAY_MS
from tests.support.journal import event, now_ms
from tests.support.round_trips import counted


def _refuse(_bad: list[tuple[Entry, psycopg.Error]]) -> None:
    raise AssertionError("nothing is refused here")


def _written(store: Store, first: int, number: int) -> int:
    """Write so many events as one batch; the round trips that it took."""
    entries = [
        Entry(sentinel.message, 0, offset, str(uuid.uuid4()), EventType.ACCEPTED, event())
        for offset in range(first, first + number)
    ]
    with counted(store.connection()) as trips:
        assert len(store.write(entries, {0: first}, {0: first + number}, _refuse)) == number
    return trips.total()


def test_a_batch_takes_the_same_round_trips_however_many_events_it_has(config: JournalConfig) -> None:
    """One event or two thousand: begin, offsets, savepoint, COPY and its end, release, commit."""
    with Store(config.database_url, "events") as store:
        today = now_ms() // DAY_MS
        partitions.ensure(store.connection(), [today, today + 1])
        store.positions([0])
        found = []
        first = 0
        for number in (1, 1, 2_000, 2_000):
            found.append(_written(store, first, number))
            first += number
    assert found[0] == found[2] == found[3] <= 7, found


def test_a_batch_leaves_no_dead_event(config: JournalConfig) -> None:
    """Events are only ever added; of a batch only the row of its partition's offset is written anew."""
    with Store(config.database_url, "events") as store:
        today = now_ms() // DAY_MS
        partitions.ensure(store.connection(), [today, today + 1])
        store.positions([0])
        _written(store, 0, 500)
        store.connection().execute("SELECT pg_stat_force_next_flush()")
        rows: list[Any] = (
            store.connection()
            .execute(
                "SELECT relname, n_tup_ins, n_tup_upd + n_tup_del, n_dead_tup FROM pg_stat_user_tables "
                "WHERE relname ~ '^delivery_event' AND n_tup_ins > 0"
            )
            .fetchall()
        )
    assert [row[1:] for row in rows] == [(500, 0, 0)]
