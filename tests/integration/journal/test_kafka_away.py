"""A broker that goes away and comes back."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from deploy.local.kafka import EmbeddedKafka
from deploy.topics import ensure_topics
from relay.journal.config import JournalConfig
from schemas.topics import DELIVERY_EVENTS, Naming
from tests.support.eventually import eventually
from tests.support.journal import event, on_wire, running
from tests.support.kafka import produce


@pytest.mark.timeout(180)
def test_kafka_away_and_back_loses_nothing(
    request: pytest.FixtureRequest, journal_db: str, tmp_path: Path, topic_prefix: str
) -> None:
    """The journal waits while there is no broker, and reads on where it was; a bad record is set aside after it."""
    if request.config.getoption("--kafka") != "embedded":
        pytest.skip("needs a broker of its own to stop")
    with EmbeddedKafka(tmp_path) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        ensure_topics(settings, Naming(topic_prefix), partitions=1)
        config = JournalConfig(settings, journal_db, Naming(topic_prefix))
        topic = config.naming(DELIVERY_EVENTS)
        with running(config) as registry:
            produce(broker.bootstrap_servers, topic, [on_wire(event("before"))])
            eventually(lambda: _recipients(journal_db) == ["before"], timeout=30)
            broker.stop()
            broker.start()
            produce(broker.bootstrap_servers, topic, [("x", b"bad"), on_wire(event("after"))], timeout=30)
            eventually(lambda: _recipients(journal_db) == ["after", "before"], timeout=60)
            label = {"service": "journal", "reason": "missing_header"}
            assert registry.get_sample_value("rung_dead_letters_total", label) == 1


def _recipients(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT recipient FROM rung.delivery_event ORDER BY 1").fetchall()]
