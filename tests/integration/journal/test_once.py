"""Each event once: across kill -9, a rebalance, a writer that lost its partition, and a topic that repeats itself."""

from __future__ import annotations

import dataclasses
import signal

import psycopg
import pytest
from prometheus_client import CollectorRegistry

from relay.journal.config import JournalConfig
from relay.journal.events import Entry
from relay.journal.partitions import ensure
from relay.journal.store import FencedError, Store
from schemas.records import EventType
from schemas.topics import DAY_MS, DELIVERY_EVENTS
from tests.support.eventually import eventually
from tests.support.journal import event, now_ms, on_wire, running, start_process
from tests.support.kafka import produce

ACCEPTED = {"type": "rung.notification.accepted"}


def count(url: str) -> int:
    """Rows of the journal."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM rung.delivery_event").fetchone()
    return int(row[0]) if row else 0


def ids(url: str) -> list[str]:
    """Event ids of the journal, each as often as it stands there."""
    with psycopg.connect(url) as connection:
        return [str(row[0]) for row in connection.execute("SELECT event_id FROM rung.delivery_event").fetchall()]


def lag(url: str, topic: str, total: int) -> bool:
    """Whether the stored offsets add up to `total`."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT coalesce(sum(next_offset), 0) FROM rung.journal_offset WHERE topic = %s", (topic,)
        ).fetchone()
    return row is not None and int(row[0]) == total


def test_events_arrive_whole(kafka: str, config: JournalConfig) -> None:
    """Every field of an event is in its row, and the offset stands beside it."""
    topic = config.naming(DELIVERY_EVENTS)
    sent = event(
        "zoë 👩‍🚀",
        step_no=1,
        channel="chat",
        provider="slack",
        attempt=2,
        key="k:1",
        reason="retry",
        detail="http_503",
        due_at=1,
        next_due_at=2,
        provider_ref="r",
        latency_ms=85,
        depth=1,
        expires_at=9,
    )
    produce(kafka, topic, [on_wire(sent, EventType.STEP_FAILED)])
    with running(config):
        eventually(lambda: count(config.database_url) == 1)
    with psycopg.connect(config.database_url) as connection:
        row = connection.execute(
            "SELECT recipient, step_no, channel, provider, attempt, key, reason, detail, due_at, next_due_at, "
            "provider_ref, latency_ms, depth, expires_at, kind, dedup_key, notification_id, at, type "
            "FROM rung.delivery_event"
        ).fetchone()
    assert row == (
        *("zoë 👩‍🚀", 1, "chat", "slack", 2, "k:1", "retry", "http_503", 1, 2, "r", 85, 1, 9),
        *("payment", "invoice-7", sent.notification_id, sent.at, "rung.step.failed"),
    )
    assert lag(config.database_url, topic, 1)


def test_each_event_once_across_kill_and_restart(kafka: str, config: JournalConfig, topic_prefix: str) -> None:
    """A journal that is killed again and again while it writes leaves each event exactly once."""
    topic = config.naming(DELIVERY_EVENTS)
    wires = [on_wire(event(f"r{n % 50}", dedup_key=str(n))) for n in range(6_000)]
    produce(kafka, topic, wires)
    for seen in (1, 2_000, 4_000):
        process = start_process(
            kafka, config.database_url, topic_prefix, instance_id="j1", batch_size=37, session_timeout_seconds=6
        )
        eventually(lambda seen=seen: count(config.database_url) >= seen, timeout=40)
        process.kill()
        assert process.wait(10) == -signal.SIGKILL
    process = start_process(
        kafka, config.database_url, topic_prefix, instance_id="j1", batch_size=500, session_timeout_seconds=6
    )
    try:
        eventually(lambda: count(config.database_url) >= 6_000, timeout=40)
    finally:
        process.terminate()
    assert process.wait(15) == 0
    expected = sorted(str(headers["ce_id"], "ascii") for _, _, headers in wires)
    assert sorted(ids(config.database_url)) == expected


def test_each_event_once_across_a_rebalance(kafka: str, config: JournalConfig) -> None:
    """A second journal that joins and leaves in the middle changes nothing about what is written."""
    topic = config.naming(DELIVERY_EVENTS)
    small = dataclasses.replace(config, batch_size=20)
    sent = 0

    def more(registry: CollectorRegistry) -> bool:
        """Write some more events; True once this journal has written a hundred."""
        nonlocal sent
        produce(kafka, topic, [on_wire(event(f"r{n % 50}", dedup_key=str(n))) for n in range(sent, sent + 400)])
        sent += 400
        return (registry.get_sample_value("rung_journal_events_total", ACCEPTED) or 0) >= 100

    with running(small) as first:
        eventually(lambda: more(first))
        with running(small) as second:
            eventually(lambda: more(second), timeout=30, describe="a hundred events of the second journal")
            more(second)
        more(first)
        eventually(lambda: count(config.database_url) >= sent, timeout=40)
    assert len(set(ids(config.database_url))) == len(ids(config.database_url)) == sent
    assert lag(config.database_url, topic, sent)


def test_a_writer_that_lost_its_partition_cannot_write(journal_db: str) -> None:
    """A zombie's transaction is refused as a whole, events included, once another one has moved the offset."""
    entry = Entry(None, 0, 0, "00000000-0000-0000-0000-000000000001", EventType.ACCEPTED, event())  # type: ignore[arg-type]
    with Store(journal_db, "t") as zombie, Store(journal_db, "t") as owner:
        ensure(zombie.connection(), [now_ms() // DAY_MS])
        assert zombie.positions([0]) == owner.positions([0]) == {0: 0}
        assert owner.write([], {0: 0}, {0: 5}, lambda _: None) == []
        with pytest.raises(FencedError):
            zombie.write([entry], {0: 0}, {0: 1}, lambda _: None)
        assert owner.positions([0]) == {0: 5}
    assert count(journal_db) == 0


def test_a_fenced_journal_takes_the_stored_offset(kafka: str, config: JournalConfig) -> None:
    """When another writer moves the offset, a running journal reads on from there and writes nothing twice."""
    topic = config.naming(DELIVERY_EVENTS)
    with running(config) as registry:
        produce(kafka, topic, [on_wire(event("ada"))], partition=0)
        eventually(lambda: count(config.database_url) == 1)
        with psycopg.connect(config.database_url) as connection:
            connection.execute("UPDATE rung.journal_offset SET next_offset = 3 WHERE partition = 0")
        produce(kafka, topic, [on_wire(event("ada", dedup_key=str(n))) for n in range(3)], partition=0)
        eventually(lambda: count(config.database_url) == 2, describe="the event at offset 3, and none before")
        assert registry.get_sample_value("rung_journal_fenced_total")
    with psycopg.connect(config.database_url) as connection:
        rows = connection.execute("SELECT kafka_offset FROM rung.delivery_event ORDER BY 1").fetchall()
    assert rows == [(0,), (3,)]


def test_repeats_in_the_topic_are_written_once(kafka: str, config: JournalConfig) -> None:
    """The same event under two offsets counts once, and its neighbours are written."""
    topic = config.naming(DELIVERY_EVENTS)
    first, other = on_wire(event("ada")), on_wire(event("ada", dedup_key="other"))
    produce(kafka, topic, [first, first, other])
    with running(config) as registry:
        eventually(lambda: lag(config.database_url, topic, 3))
        eventually(lambda: registry.get_sample_value("rung_journal_repeats_total") == 1)
        assert registry.get_sample_value("rung_journal_events_total", ACCEPTED) == 2
    assert count(config.database_url) == 2


def test_a_topic_read_again_from_its_start_changes_nothing(kafka: str, config: JournalConfig) -> None:
    """Where the offsets were lost, everything is read again and nothing is written twice."""
    topic = config.naming(DELIVERY_EVENTS)
    produce(kafka, topic, [on_wire(event("ada", dedup_key=str(n))) for n in range(50)])
    with running(config):
        eventually(lambda: count(config.database_url) == 50)
    with psycopg.connect(config.database_url) as connection:
        connection.execute("DELETE FROM rung.journal_offset")
    with running(config) as registry:
        eventually(lambda: registry.get_sample_value("rung_journal_repeats_total") == 50)
    assert count(config.database_url) == 50
