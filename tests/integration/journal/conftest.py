"""A migrated database and the journal's topics, for its tests."""

from __future__ import annotations

import pytest

from deploy.topics import ensure_topics
from relay.journal.config import JournalConfig
from relay.outbox.migrations import migrate
from schemas.topics import Naming


@pytest.fixture
def journal_db(database_url: str) -> str:
    """A database of the test's own with all tables."""
    migrate(database_url)
    return database_url


@pytest.fixture
def config(kafka: str, journal_db: str, topic_prefix: str) -> JournalConfig:
    """A journal on topics of the test's own, with two partitions each."""
    settings = {"bootstrap.servers": kafka}
    ensure_topics(settings, Naming(topic_prefix), partitions=2)
    return JournalConfig(settings, journal_db, Naming(topic_prefix), session_timeout_seconds=6)
