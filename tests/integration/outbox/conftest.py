"""A migrated database with two kinds, the two topics of the outbox, and relays on both."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry

from relay.outbox.config import OutboxConfig
from relay.outbox.kinds import publish_kinds
from relay.outbox.migrations import migrate
from relay.outbox.service import run
from schemas.topics import NOTIFICATIONS, RESOLUTIONS, Naming
from tests.support import kafka as topics
from tests.support.kafka import Record

KINDS = ("order_shipped", "payment_action_required")


class Relay:
    """A relay in a thread of this process."""

    def __init__(self, config: OutboxConfig) -> None:
        self.registry = CollectorRegistry()
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(config,), daemon=True)
        self._thread.start()

    def _run(self, config: OutboxConfig) -> None:
        try:
            run(config, self._stop, self.registry)
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """End in order, and raise what ended it before."""
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the relay did not stop"
        if self.error is not None:
            raise self.error

    def metric(self, name: str, **labels: str) -> float:
        """The value of one metric."""
        value = self.registry.get_sample_value(name, labels)
        assert value is not None, f"no metric {name} {labels}"
        return value


@dataclass(frozen=True)
class Outbox:
    """Everything a test of the outbox needs."""

    url: str
    bootstrap: str
    config: OutboxConfig

    def connect(self) -> psycopg.Connection[Any]:
        """A connection of a business service, in autocommit."""
        return psycopg.connect(self.url, autocommit=True)

    def sql(self, query: str, *parameters: object) -> list[Any]:
        """Run one statement and return its rows."""
        with self.connect() as connection:
            cursor = connection.execute(query, parameters or None)
            return cursor.fetchall() if cursor.description else []

    @contextlib.contextmanager
    def relay(self, **changes: Any) -> Iterator[Relay]:
        """A running relay, with some settings changed."""
        relay = Relay(replace(self.config, **changes))
        try:
            yield relay
        finally:
            relay.stop()

    def records(self, count: int, timeout: float = 20.0) -> list[Record]:
        """At least so many records of both topics."""
        names = [self.config.naming(NOTIFICATIONS), self.config.naming(RESOLUTIONS)]
        return topics.read_all(self.bootstrap, names, until=count, timeout=timeout)

    def all_records(self, timeout: float = 20.0) -> list[Record]:
        """What both topics hold now."""
        names = [self.config.naming(NOTIFICATIONS), self.config.naming(RESOLUTIONS)]
        return topics.read_all(self.bootstrap, names, until=None, timeout=timeout)

    def dead(self) -> list[tuple[int, str]]:
        """Number in sequence and reason of the rows set aside."""
        return self.sql("SELECT seq, reason FROM rung.outbox_dead ORDER BY seq")


@pytest.fixture
def database(database_url: str) -> str:
    """A migrated database that knows the kinds."""
    migrate(database_url)
    publish_kinds(database_url, KINDS)
    return database_url


@pytest.fixture
def outbox(database: str, kafka: str, topic_prefix: str) -> Outbox:
    """A migrated database and the two topics, with four partitions each."""
    naming = Naming(topic_prefix)
    topics.create_topics(kafka, {naming(NOTIFICATIONS): 4, naming(RESOLUTIONS): 4})
    config = OutboxConfig(
        kafka={"bootstrap.servers": kafka},
        database_url=database,
        naming=naming,
        lease_seconds=3.0,
        lease_margin_seconds=1.0,
        renew_seconds=0.2,
        cursor_seconds=0.1,
        cursor_idle_seconds=0.5,
        observe_seconds=0.05,
        max_backoff_seconds=0.5,
    )
    return Outbox(database, kafka, config)


def read_parameters(seen: str, rows: int) -> dict[str, Any]:
    """Of a read of all buckets together, from a snapshot on."""
    return {
        "numbers": [0],
        "buckets": ["{" + ",".join(map(str, range(64))) + "}"],
        "seen": [seen],
        "until": [None],
        "after": [0],
        "rows": rows,
        "bytes": 1 << 24,
        "max_value": 1 << 20,
    }
