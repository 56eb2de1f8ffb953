"""What the relay costs the database, in counts that are the same on every machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from relay.outbox import queries
from relay.outbox.domain import Group, Position
from relay.outbox.store import Page, Store
from schemas.topics import NOTIFICATIONS
from tests.integration.outbox.conftest import Outbox, read_parameters
from tests.support import kafka as topics
from tests.support.eventually import eventually
from tests.support.round_trips import counted

PAGE = 2_000
FILL = """
SELECT count(rung.notify('recipient-' || i %% 500, 'order_shipped', '{}', i::text))
FROM generate_series(%s::int, %s::int) i
"""


def fill(outbox: Outbox, rows: int) -> None:
    """So many rows, a hundred in a transaction."""
    with outbox.connect() as connection:
        for first in range(1, rows + 1, 100):
            connection.execute(FILL, (first, first + 99))


def test_a_read_of_any_size_is_one_round_trip(outbox: Outbox) -> None:
    """A page of 2,000 rows for 64 buckets, by both ways to read, and the positions of all buckets: one each."""
    seen = outbox.sql("SELECT pg_current_snapshot()::text")[0][0]
    fill(outbox, PAGE)
    until = outbox.sql("SELECT pg_current_snapshot()::text")[0][0]
    store = Store(outbox.url, uuid4())
    store.connect()
    connection = store._open()
    try:
        looks = [Group(Position(seen), (bucket,)) for bucket in range(64)]
        walk = Group(Position(seen, until, 0), tuple(range(64)))
        positions = dict.fromkeys(range(64), Position(until))
        for _warm in range(2):
            with counted(connection) as trips:
                pages = store.read(looks, PAGE * 64, 1 << 24)
            with counted(connection) as walked:
                page = store.walk(walk, PAGE, 1 << 24)
            with counted(connection) as saved:
                store.save(positions, dict.fromkeys(range(64), 1))
        assert sum(len(page.rows) for page in pages) == len(page.rows) == PAGE
        assert (trips.total(), walked.total(), saved.total()) == (1, 1, 1)
    finally:
        store.close()


def test_a_backlog_costs_a_read_for_each_page_and_no_dead_tuple(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12,000 rows are read in pages of 2,000, with at most two reads more that find rows, and no row dies by it."""
    rows = 6 * PAGE
    fill(outbox, rows)
    reads: Counter[str] = Counter()
    read, walk = Store.read, Store.walk

    def counted_read(store: Store, groups: Sequence[Group], *limits: Any) -> list[Page]:
        pages = read(store, groups, *limits)
        reads["with rows"] += any(page.rows for page in pages)
        return pages

    def counted_walk(store: Store, *limits: Any) -> Page:
        page = walk(store, *limits)
        reads["with rows"] += bool(page.rows)
        return page

    monkeypatch.setattr(Store, "read", counted_read)
    monkeypatch.setattr(Store, "walk", counted_walk)
    with outbox.relay(max_waiting_per_bucket=rows, max_waiting=rows):
        topic = outbox.config.naming(NOTIFICATIONS)
        assert len(topics.read_all(outbox.bootstrap, topic, until=rows, timeout=60)) == rows
    assert math.ceil(rows / PAGE) <= reads["with rows"] <= math.ceil(rows / PAGE) + 2
    dead = "SELECT coalesce(sum(n_dead_tup), 0)::int, coalesce(sum(n_tup_ins), 0)::int FROM pg_stat_user_tables "
    dead += "WHERE schemaname = 'rung' AND relname ~ '^outbox(_p[0-9]+)?$'"
    eventually(lambda: outbox.sql(dead)[0][1] == rows, describe="the server has told its statistics")
    assert outbox.sql(dead)[0][0] == 0


def test_an_idle_poll_is_one_round_trip_with_one_row(outbox: Outbox) -> None:
    """Where nothing is new, a poll of all 64 buckets brings the snapshot and nothing else."""
    fill(outbox, 100)
    seen = outbox.sql("SELECT pg_current_snapshot()::text")[0][0]
    with psycopg.connect(outbox.url, autocommit=True) as connection:
        connection.execute(queries.SESSION)
        parameters = read_parameters(seen, PAGE)
        connection.prepare_threshold = 0
        for _warm in range(2):
            with counted(connection) as trips:
                found = connection.execute(queries.READ, parameters, binary=True).fetchall()
        assert (trips.total(), len(found)) == (1, 1)
