"""Several replicas, and servers that go away: order per recipient holds, nothing is lost, repeats keep their ce_id."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry

from relay.outbox.domain import Position
from relay.outbox.leases import LeaseLostError, Leases, RestoredDatabaseError
from relay.outbox.loop import Session
from relay.outbox.metrics import OutboxMetrics
from relay.outbox.store import Store
from schemas.topics import NOTIFICATIONS, RESOLUTIONS, Naming
from tests.integration.outbox.conftest import Outbox
from tests.support import kafka as topics
from tests.support.eventually import eventually
from tests.support.kafka import Record
from tests.support.outbox_process import relay_process

NOTIFY = "SELECT rung.notify(%s, 'order_shipped', '{}', %s)"
OWNERS = "SELECT r.name, count(*) FROM rung.outbox_cursor c JOIN rung.outbox_replica r ON r.id = c.owner GROUP BY 1"
PEOPLE = 30


class Writer:
    """Writes rows of numbered people, in order for each, until it is stopped."""

    def __init__(self, outbox: Outbox) -> None:
        self.written = 0
        self._outbox = outbox
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        with self._outbox.connect() as connection:
            while not self._stop.is_set():
                with connection.transaction():
                    for _ in range(5):
                        connection.execute(NOTIFY, (f"p{self.written % PEOPLE}", str(self.written)))
                        self.written += 1
                self._stop.wait(0.005)


def settings(outbox: Outbox, **changes: Any) -> dict[str, Any]:
    """The fixture's settings for a process."""
    config = outbox.config
    names = ("database_url", "lease_seconds", "lease_margin_seconds", "renew_seconds", "cursor_seconds")
    return {
        "kafka": dict(config.kafka),
        "prefix": config.naming.prefix,
        **{name: getattr(config, name) for name in names},
        **changes,
    }


def owners(outbox: Outbox) -> dict[str, int]:
    """How many buckets each replica holds, by name."""
    return dict(outbox.sql(OWNERS))


def judge(outbox: Outbox, records: list[Record]) -> int:
    """Check order and completeness against the table, row by row; returns the number of repeats."""
    rows = outbox.sql("SELECT id::text, aggregateid FROM rung.outbox ORDER BY seq")
    first_seen = list(dict.fromkeys((r.header("ce_id"), (r.key or b"").decode()) for r in records))
    assert sorted(first_seen) == sorted(rows), "published and committed differ"
    for person in {person for _, person in rows}:
        assert [i for i, p in first_seen if p == person] == [i for i, p in rows if p == person], person
    return len(records) - len(first_seen)


def published_all(outbox: Outbox, count: int) -> bool:
    """Whether so many different rows are in the topics."""
    return len({r.header("ce_id") for r in outbox.all_records()}) >= count


def test_replicas_share_the_buckets_and_take_over_from_one_that_is_killed(outbox: Outbox) -> None:
    """Two processes hold half each; one is killed under load, and the other takes its buckets: all rows, in order."""
    with relay_process(**settings(outbox, replica="one")) as one, Writer(outbox) as writer:
        eventually(lambda: owners(outbox) == {"one": 64})
        with relay_process(**settings(outbox, replica="two")) as two:
            eventually(lambda: owners(outbox) == {"one": 32, "two": 32})
            reached = writer.written + 200
            eventually(lambda: writer.written > reached)
            one.kill()
            eventually(lambda: owners(outbox) == {"two": 64}, describe=lambda: f"two to hold all: {owners(outbox)}")
            reached = writer.written + 200
            eventually(lambda: writer.written > reached)
            writer.__exit__()
            eventually(lambda: published_all(outbox, writer.written), timeout=30)
            two.send_signal(signal.SIGTERM)
            assert two.wait(15) == 0
    judge(outbox, outbox.all_records())


def test_handing_buckets_over_in_order_repeats_nothing(outbox: Outbox) -> None:
    """Replicas that come and go with SIGTERM under load: every row exactly once, in order, and exit code 0."""
    with Writer(outbox) as writer, relay_process(**settings(outbox, replica="one")) as one:
        eventually(lambda: owners(outbox) == {"one": 64})
        with relay_process(**settings(outbox, replica="two")) as two:
            eventually(lambda: owners(outbox) == {"one": 32, "two": 32})
            one.send_signal(signal.SIGTERM)
            assert one.wait(15) == 0
            eventually(lambda: owners(outbox) == {"two": 64})
            writer.__exit__()
            eventually(lambda: published_all(outbox, writer.written), timeout=30)
            two.send_signal(signal.SIGTERM)
            assert two.wait(15) == 0
    assert judge(outbox, outbox.all_records()) == 0
    assert owners(outbox) == {}
    assert outbox.sql("SELECT count(*) FROM rung.outbox_replica") == [(0,)]


def test_a_frozen_replica_gives_up_when_it_wakes(outbox: Outbox) -> None:
    """A process stopped past its lease loses its buckets; woken up it joins again, and order holds throughout."""
    with relay_process(**settings(outbox, replica="one")) as one, Writer(outbox) as writer:
        eventually(lambda: owners(outbox) == {"one": 64})
        one.send_signal(signal.SIGSTOP)
        with relay_process(**settings(outbox, replica="two")) as two:
            eventually(lambda: owners(outbox) == {"two": 64})
            one.send_signal(signal.SIGCONT)
            eventually(lambda: owners(outbox) == {"one": 32, "two": 32})
            writer.__exit__()
            eventually(lambda: published_all(outbox, writer.written), timeout=30)
            for process in (one, two):
                process.send_signal(signal.SIGTERM)
                assert process.wait(15) == 0
    judge(outbox, outbox.all_records())


def test_a_position_of_an_older_epoch_changes_nothing(outbox: Outbox) -> None:
    """A replica whose bucket was taken over can neither store a position nor release the bucket."""
    old, new = uuid4(), uuid4()
    outbox.sql("UPDATE rung.outbox_cursor SET owner = %s, epoch = 4 WHERE bucket = 3", old)
    store = Store(outbox.url, old)
    store.connect()
    position = Position("99:99:")
    assert store.save({3: position}, {3: 4}) == {3}
    outbox.sql("UPDATE rung.outbox_cursor SET owner = %s, epoch = 5 WHERE bucket = 3", new)
    assert store.save({3: position}, {3: 4}) == set()
    assert store.save({3: position}, {3: 5}, release=True) == set()
    assert outbox.sql("SELECT owner, epoch FROM rung.outbox_cursor WHERE bucket = 3") == [(new, 5)]
    outbox.sql("UPDATE rung.outbox_cursor SET owner = %s, epoch = 6 WHERE bucket = 3", old)
    assert store.save({3: position}, {3: 4}) == set(), "the same replica, under a lease that it has given up"
    store.close()


def test_a_lease_that_another_replica_found_expired_is_not_renewed(outbox: Outbox) -> None:
    """Once its row is gone a replica learns it at the next renewal, drops what is in flight and may not publish."""
    expired = threading.Event()
    leases = Leases(outbox.config, uuid4(), expired.set)
    leases.join()
    leases.check()
    outbox.sql("DELETE FROM rung.outbox_replica")
    assert expired.wait(5)
    with pytest.raises(LeaseLostError):
        leases.check()
    leases.leave()


def test_a_lease_ends_before_the_server_lets_others_take_it(outbox: Outbox) -> None:
    """A replica that cannot renew stops while the server still counts it as alive, though its statement hangs."""
    expired = threading.Event()
    leases = Leases(outbox.config, uuid4(), expired.set)
    leases.join()
    with outbox.connect() as blocker, blocker.transaction():
        blocker.execute("LOCK TABLE rung.outbox_replica IN SHARE MODE")
        assert expired.wait(5)
        assert outbox.sql("SELECT count(*) FROM rung.outbox_replica WHERE expires_at > clock_timestamp()") == [(1,)]
    leases.leave()


def test_a_database_copied_as_sql_is_refused(outbox: Outbox) -> None:
    """Positions ahead of the server's transaction ids would hide every new row: the relay says so and ends."""
    outbox.sql("UPDATE rung.outbox_cursor SET seen = '900000000:900000000:' WHERE bucket = 7")
    session = Session(outbox.config, OutboxMetrics(CollectorRegistry()), threading.Event())
    with pytest.raises(RestoredDatabaseError):
        session.run()


def test_losing_every_connection_is_survived(outbox: Outbox) -> None:
    """The server ends all sessions again and again: the relay connects anew, and every row is published once."""
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'rung outbox%'"
    with outbox.relay() as relay:
        for n in range(60):
            outbox.sql(NOTIFY, f"p{n % 5}", str(n))
            if n % 10 == 5:
                outbox.sql(kill)
        eventually(lambda: published_all(outbox, 60))
        assert relay.metric("rung_outbox_failures_total", of="postgres") >= 1
    assert judge(outbox, outbox.all_records()) == 0


def test_kafka_that_is_away_is_waited_for(outbox: Outbox) -> None:
    """With no broker to be reached rows wait and their age shows; a relay that reaches one publishes each once."""
    nobody = {"bootstrap.servers": "127.0.0.1:1"}
    outbox.sql(NOTIFY, "ada", "1")
    with outbox.relay(kafka=nobody, shutdown_seconds=0.2) as relay:
        eventually(lambda: relay.metric("rung_outbox_oldest_unpublished_seconds") > 1)
        assert relay.metric("rung_outbox_waiting_rows") == 1
    outbox.sql(NOTIFY, "ada", "2")
    with outbox.relay():
        outbox.records(2)
    assert judge(outbox, outbox.all_records()) == 0


def test_a_topic_that_is_missing_is_waited_for(outbox: Outbox) -> None:
    """The producer breaks on a topic that does not exist; rows go out in order once it does."""
    naming = Naming(outbox.config.naming.prefix + "later.")
    later = replace(outbox, config=replace(outbox.config, naming=naming))
    kafka = {**outbox.config.kafka, "allow.auto.create.topics": "false", "topic.metadata.propagation.max.ms": "200"}
    with later.relay(kafka=kafka) as relay:
        for n in range(10):
            outbox.sql(NOTIFY, "ada", str(n))
        eventually(lambda: relay.metric("rung_outbox_failures_total", of="kafka") >= 1)
        topics.create_topics(outbox.bootstrap, {naming(NOTIFICATIONS): 4, naming(RESOLUTIONS): 4})
        eventually(lambda: published_all(later, 10))
    judge(later, later.all_records())
