"""A cluster's topics and a migrated database of each test's own, and services to start on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.topics import ensure_topics
from schemas.topics import Naming
from tests.support import migrated
from tests.support.startup import Cluster, Launcher


@pytest.fixture(scope="session")
def template(postgres_server: str) -> Iterator[str]:
    """A migrated database to copy."""
    with migrated.template(postgres_server, ["welcome"]) as url:
        yield url


@pytest.fixture
def database(postgres_server: str, template: str) -> Iterator[str]:
    """A migrated database of the test's own."""
    with migrated.database(postgres_server, template) as url:
        yield url


@pytest.fixture
def cluster(kafka: str, topic_prefix: str) -> Cluster:
    """The catalogue's topics with two partitions each, under a prefix of the test's own."""
    ensure_topics({"bootstrap.servers": kafka}, Naming(topic_prefix), partitions=2)
    return Cluster(kafka, Naming(topic_prefix))


@pytest.fixture
def rung(kafka: str, database: str, topic_prefix: str, tmp_path: Path) -> Iterator[Launcher]:
    """The command, told of these servers."""
    launcher = Launcher(
        tmp_path,
        {
            "RUNG_KAFKA": kafka,
            "RUNG_DATABASE_URL": database,
            "RUNG_TOPIC_PREFIX": topic_prefix,
            "RUNG_PARTITIONS": "2",
            "RUNG_INSTANCE_ID": "one",
        },
    )
    yield launcher
    launcher.end_all()
