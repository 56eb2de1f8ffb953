"""A system's traces on real servers: an outbox, its events and a journal, as the services leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from relay.audit.book import Fact
from relay.audit.config import AuditConfig
from relay.audit.report import Report
from relay.audit.service import run_once
from relay.journal.config import JournalConfig
from schemas.topics import DEAD_LETTERS, DELIVERY_EVENTS, Naming
from tests.support import migrated
from tests.support.audit import facts, story
from tests.support.eventually import eventually
from tests.support.journal import now_ms, on_wire, running
from tests.support.kafka import create_topics, produce
from tests.support.recipient import ADA, Player, identity


@dataclass(frozen=True)
class Traces:
    """What a system has left behind, and how to change it."""

    config: AuditConfig
    journal: JournalConfig
    history: list[Fact]

    def sql(self, query: str, *values: object) -> list[Any]:
        """Run one statement and return its rows."""
        with psycopg.connect(self.config.database_url, autocommit=True) as connection:
            cursor = connection.execute(query, values or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def request(self, key: str, data: dict[str, Any] | None = None, recipient: str = ADA) -> None:
        """A row of the outbox."""
        self.sql("SELECT rung.notify(%s, 'payment', %s, %s)", recipient, Jsonb(data or {}), key)

    def published(self) -> None:
        """The relay says that all of the outbox is published."""
        self.sql("UPDATE rung.outbox_cursor SET seen = pg_current_snapshot()")

    def emit(self, *events: Fact) -> None:
        """Write events to the topic."""
        topic = self.config.naming(DELIVERY_EVENTS)
        produce(self.journal.kafka["bootstrap.servers"], topic, [on_wire(f.event, f.type, f.event_id) for f in events])

    def journalled(self) -> bool:
        """Whether the journal has reached the end of the topic."""
        topic = self.config.naming(DELIVERY_EVENTS)
        [(done,)] = self.sql("SELECT coalesce(sum(next_offset), 0) FROM rung.journal_offset WHERE topic = %s", topic)
        return int(done) >= self.emitted

    @property
    def emitted(self) -> int:
        """How many events the topic holds."""
        from tests.support.kafka import read_all

        return len(read_all(self.journal.kafka["bootstrap.servers"], self.config.naming(DELIVERY_EVENTS)))

    def write_journal(self) -> None:
        """Let a real journal write what it has not written."""
        with running(self.journal):
            eventually(self.journalled, timeout=30, describe="the journal at the topic's end")

    def audit(self, **changes: Any) -> Report:
        """One run."""
        return run_once(replace(self.config, **changes))


@pytest.fixture(scope="session")
def audit_template(postgres_server: str) -> Iterator[str]:
    """A migrated database to copy."""
    with migrated.template(postgres_server, ["payment"]) as url:
        yield url


@pytest.fixture
def traces(kafka: str, postgres_server: str, audit_template: str, topic_prefix: str) -> Iterator[Traces]:
    """A real history of one person, in the outbox, the topic and the journal."""
    naming = Naming(topic_prefix)
    create_topics(kafka, {naming(DELIVERY_EVENTS): 2, naming(DEAD_LETTERS): 2})
    with migrated.database(postgres_server, audit_template) as url:
        settings = {"bootstrap.servers": kafka}
        history = facts(story(Player(now=now_ms() - 30_000)))
        config = AuditConfig(settings, url, naming, settle_seconds=0.0)
        found = Traces(config, JournalConfig(settings, url, naming, session_timeout_seconds=6), history)
        for key, data in (("k1", {}), ("k2", {}), ("k2", {}), ("k2", {"n": 2}), ("k3", {})):
            found.request(key, data)
        found.published()
        found.emit(*history)
        yield found


def ids(keys: Iterable[str]) -> set[str]:
    """The ids of the notifications with these keys."""
    return {str(identity(key)) for key in keys}


Seed = Callable[[Traces], None]
