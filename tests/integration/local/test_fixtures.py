"""The fixtures and helpers that other tests stand on."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.eventually import eventually
from tests.support.kafka import Topic, create_topics, produce, read_all


def test_records_come_back_in_order_with_headers(kafka: str, topic_prefix: str) -> None:
    """What `produce` writes, `read_all` reads: key, value, headers and order."""
    topic = f"{topic_prefix}letters"
    create_topics(kafka, {topic: Topic(3, {"cleanup.policy": "compact"})})
    sent = produce(kafka, topic, [("ada", b"1", {"ce_type": "x"}), ("ada", b"2"), ("bob", None)])
    records = read_all(kafka, topic, until=3)
    assert sorted(records, key=lambda r: (r.partition, r.offset)) == sorted(sent, key=lambda r: (r.partition, r.offset))
    assert [r.value for r in records if r.key == b"ada"] == [b"1", b"2"]
    assert [r.header("ce_type") for r in records if r.value == b"1"] == ["x"]


def test_reading_an_empty_topic_returns_nothing(kafka: str, topic_prefix: str) -> None:
    """Without `until`, reading ends at the end of the topic."""
    create_topics(kafka, [f"{topic_prefix}empty"])
    assert read_all(kafka, f"{topic_prefix}empty") == []


def test_databases_are_fresh_and_ours(database_url: str) -> None:
    """Each test has an empty database in which it may do everything."""
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
        connection.execute("CREATE ROLE nobody_else NOLOGIN")
        connection.rollback()


def test_eventually_tells_the_last_value_and_exception() -> None:
    """A condition that never holds fails with what it last said."""
    with pytest.raises(AssertionError, match=r"the door did not hold within 0.01 s; last value: 0"):
        eventually(lambda: 0, timeout=0.01, describe="the door")
    with pytest.raises(AssertionError, match="last exception: ZeroDivisionError"):
        eventually(lambda: 1 // 0, timeout=0.01)
    assert eventually(lambda: "yes") == "yes"
