"""Day partitions: made ahead, made for late events, dropped whole; and nothing kept past the retention."""

from __future__ import annotations

import dataclasses

import psycopg

from relay.journal.config import JournalConfig
from relay.journal.partitions import drop_before, ensure, name_of
from schemas.topics import DAY_MS, DELIVERY_EVENTS
from tests.support.eventually import eventually
from tests.support.journal import event, now_ms, on_wire, running
from tests.support.kafka import produce


def partitions(url: str) -> list[str]:
    """The attached partitions, by name."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'rung.delivery_event'::regclass"
        ).fetchall()
    return sorted(row[0].removeprefix("rung.") for row in rows)


def test_retention_drops_whole_days(kafka: str, config: JournalConfig) -> None:
    """A late event of a kept day is written; once its day is over its retention, the day goes, rows and table."""
    topic, now = config.naming(DELIVERY_EVENTS), now_ms()
    today, old = now // DAY_MS, now // DAY_MS - 3
    produce(kafka, topic, [on_wire(event("old", at=now - 3 * DAY_MS)), on_wire(event("new", at=now))])
    with running(dataclasses.replace(config, retention_days=5)):
        eventually(lambda: name_of(old) in partitions(config.database_url))
    assert partitions(config.database_url) == [name_of(old), *(name_of(today + n) for n in range(3))]
    with running(dataclasses.replace(config, retention_days=2)):
        eventually(lambda: name_of(old) not in partitions(config.database_url))
    with psycopg.connect(config.database_url) as connection:
        assert connection.execute("SELECT recipient FROM rung.delivery_event").fetchall() == [("new",)]
        assert connection.execute("SELECT to_regclass(%s)", (f"rung.{name_of(old)}",)).fetchone() == (None,)
        dead = connection.execute("SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE relname LIKE 'delivery%'")
        assert dead.fetchone() == (0,)


def test_events_past_the_retention_are_not_written(kafka: str, config: JournalConfig) -> None:
    """An event older than what is kept makes no partition, and the offset moves past it."""
    topic, now = config.naming(DELIVERY_EVENTS), now_ms()
    produce(kafka, topic, [on_wire(event("old", at=now - 40 * DAY_MS)), on_wire(event("new", at=now))], partition=0)
    with running(config) as registry:
        eventually(lambda: registry.get_sample_value("rung_journal_past_retention_total") == 1)
    assert len(partitions(config.database_url)) == 3


def test_a_long_query_delays_the_drop_and_is_not_disturbed(journal_db: str) -> None:
    """A day that a transaction still reads stays readable to it, and is dropped at a later time."""
    day = 10_000
    with psycopg.connect(journal_db, autocommit=True) as upkeep, psycopg.connect(journal_db) as reader:
        assert ensure(upkeep, [day, day + 1]) == [name_of(day), name_of(day + 1)]
        assert ensure(upkeep, [day, day + 1]) == []
        assert reader.execute("SELECT count(*) FROM rung.delivery_event").fetchone() == (0,)
        assert drop_before(upkeep, day + 1) == [], "the reader's transaction is open"
        assert reader.execute("SELECT count(*) FROM rung.delivery_event").fetchone() == (0,)
        reader.rollback()
        assert drop_before(upkeep, day + 1) == [name_of(day)]
    assert partitions(journal_db) == [name_of(day + 1)]


def test_the_journals_role_suffices(journal_db: str) -> None:
    """A user who is only `rung_journal` may do all that the journal does; `rung_reader` may read and not write."""
    with psycopg.connect(journal_db, autocommit=True) as connection:
        connection.execute("SET ROLE rung_journal")
        ensure(connection, [10_000])
        assert drop_before(connection, 10_001) == [name_of(10_000)]
        connection.execute("INSERT INTO rung.journal_offset VALUES ('t', 0, 0)")
        connection.execute("SELECT name FROM rung.kind")
        connection.execute("SET ROLE rung_reader")
        assert connection.execute("SELECT count(*) FROM rung.notification").fetchone() == (0,)
        try:
            connection.execute("DELETE FROM rung.journal_offset")
        except psycopg.errors.InsufficientPrivilege:
            return
    raise AssertionError("a reader could delete")
