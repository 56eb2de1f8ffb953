"""Create the topics of the catalogue on a cluster, and refuse a cluster whose topics would lose data."""

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.errors import CommandError
from processor.engine.config import PROCESSOR_GROUP, changelog_name
from schemas.topics import CATALOGUE, PROCESSOR_INPUTS, Naming, Topic

LOOK_SECONDS = 0.05


class TopicsError(CommandError, RuntimeError):
    """The cluster's topics are not what the services need; the message says what to do."""


def topic_config(topic: Topic) -> dict[str, str]:
    """A catalogue entry as Kafka topic settings."""
    config = {"cleanup.policy": topic.cleanup, "max.message.bytes": str(topic.max_message_bytes)}
    if topic.append_time:
        config["message.timestamp.type"] = "LogAppendTime"
    if topic.retention_ms is not None:
        config["retention.ms"] = str(topic.retention_ms)
    return config


def ensure_topics(
    kafka: Mapping[str, str], naming: Naming, *, partitions: int, replication_factor: int = 1, timeout: float = 30.0
) -> list[str]:
    """Create what is missing of the catalogue, and return the names that were created once all can be used.

    `kafka` is a librdkafka client configuration with `bootstrap.servers`.

    Raises:
        TopicsError: a topic exists with another number of partitions, or the processor's state was built with one.
        KafkaException: the cluster cannot be reached, or refuses.
    """
    admin = AdminClient(dict(kafka))
    existing = admin.list_topics(timeout=timeout).topics
    missing = [t for t in CATALOGUE if naming(t) not in existing]
    for topic in CATALOGUE:
        found = existing.get(naming(topic))
        if found is not None and len(found.partitions) != partitions:
            raise TopicsError(
                f"topic {naming(topic)} has {len(found.partitions)} partitions, and the settings say {partitions}: "
                "every topic must have the same number; set RUNG_PARTITIONS to the one that the cluster has"
            )
    changelog = changelog_name(naming.prefix + PROCESSOR_GROUP, map(naming, PROCESSOR_INPUTS))
    state = existing.get(changelog)
    if state is not None and len(state.partitions) != partitions:
        raise TopicsError(
            f"the processor's state was built with {len(state.partitions)} partitions ({changelog}), and the settings "
            f"say {partitions}: set RUNG_PARTITIONS to {len(state.partitions)}"
        )
    new = [
        NewTopic(naming(t), num_partitions=partitions, replication_factor=replication_factor, config=topic_config(t))
        for t in missing
    ]
    created = []
    for name, future in (admin.create_topics(new, operation_timeout=timeout) if new else {}).items():
        try:
            future.result(timeout)
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    _wait_for_leaders(admin, frozenset(map(naming, missing)), timeout)
    return created


def _wait_for_leaders(admin: AdminClient, names: frozenset[str], timeout: float) -> None:
    """A topic that was created is known to the controller first: a service that starts at once would not find it."""
    deadline = time.monotonic() + timeout
    while True:
        known = admin.list_topics(timeout=timeout).topics
        waiting = [
            name
            for name in names
            if name not in known or any(partition.leader < 0 for partition in known[name].partitions.values())
        ]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise TopicsError(
                f"topics were created and have no leaders after {timeout:.0f} s: {', '.join(sorted(waiting))}; look at "
                "the brokers and try again"
            )
        time.sleep(LOOK_SECONDS)
