"""How the journal reads Kafka: its consumer's settings and where it starts."""

import psycopg
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from relay.journal.config import JournalConfig

GROUP = "rung-journal"
"""The consumer group's name, after the topic prefix."""


def consumer_settings(config: JournalConfig) -> dict[str, object]:
    """The consumer's settings: the database holds the offsets, and an assignment is a whole one."""
    session_ms = round(config.session_timeout_seconds * 1000)
    settings: dict[str, object] = {
        **config.kafka,
        "group.id": config.naming.prefix + GROUP,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "range",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": min(3_000, session_ms // 3),
        "fetch.wait.max.ms": 100,
    }
    if config.instance_id is not None:
        settings["group.instance.id"] = config.instance_id
    return settings


def start_of(topic: str, partition: int, offset: int) -> TopicPartition:
    """A partition with the offset to read from; 0 means its beginning, wherever that is by now."""
    return TopicPartition(topic, partition, offset or OFFSET_BEGINNING)


def describe(error: BaseException | None) -> str:
    """An error without the values that it may quote: its class, and the SQLSTATE if it has one."""
    if error is None:
        return "none"
    sqlstate = error.sqlstate if isinstance(error, psycopg.Error) else None
    return type(error).__name__ + (f" {sqlstate}" if sqlstate else "")
