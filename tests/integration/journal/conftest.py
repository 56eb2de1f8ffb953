"""A migrated database and the journal's topics, for its tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.topics import ensure_topics
from relay.journal.config import JournalConfig
from schemas.topics import Naming
from tests.support import migrated


@pytest.fixture(scope="session")
def journal_template(postgres_server: str) -> Iterator[str]:
    """A migrated database to copy."""
    with migrated.template(postgres_server) as url:
        yield url


@pytest.fixture
def journal_db(postgres_server: str, journal_template: str) -> Iterator[str]:
    """A database of the test's own with all tables."""
    with migrated.database(postgres_server, journal_template) as url:
        yield url


@pytest.fixture
def config(kafka: str, journal_db: str, topic_prefix: str) -> JournalConfig:
    """A journal on topics of the test's own, with two partitions each."""
    settings = {"bootstrap.servers": kafka}
    ensure_topics(settings, Naming(topic_prefix), partitions=2)
    return JournalConfig(settings, journal_db, Naming(topic_prefix), session_timeout_seconds=6)
