"""A start right after the death of a process that was in the middle of a transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from deploy.needs import needs
from deploy.preflight import look_at_cluster, stored_positions
from processor.engine.changelog import CHANGELOG_CONFIG
from tests.support.kafka import PRODUCER_SETTINGS, Topic, create_topics
from tests.support.startup import Cluster, admin, settings

OPEN_SECONDS = 300
"""How long Kafka itself would leave the transaction open: longer than the test may take."""


@pytest.fixture(params=["processor", "delays"])
def service(request: pytest.FixtureRequest) -> str:
    """A service that commits its positions in transactions."""
    return str(request.param)


@pytest.fixture
def predecessor(service: str, cluster: Cluster) -> Iterator[Producer]:
    """A process of this instance that has committed position 5, and then 9 in a transaction which it did not end."""
    need = needs(service, settings(cluster.kafka, cluster.naming.prefix))
    if need.changelog is not None:
        create_topics(cluster.kafka, {need.changelog: Topic(2, CHANGELOG_CONFIG)})
    producer = Producer(
        {
            **need.kafka,
            **PRODUCER_SETTINGS,
            "transactional.id": need.transactional_id,
            "transaction.timeout.ms": OPEN_SECONDS * 1000,
        }
    )
    group = Consumer({**need.kafka, "group.id": need.group})
    place = TopicPartition(need.reads[0], 1)
    producer.init_transactions(30)
    for offset in (5, 9):
        producer.begin_transaction()
        place.offset = offset
        producer.send_offsets_to_transaction([place], group.consumer_group_metadata(), 30)
        if offset == 5:
            producer.commit_transaction(30)
    yield producer
    group.close()


def test_a_start_does_not_wait_for_the_transaction_of_its_predecessor(
    service: str, cluster: Cluster, predecessor: Producer
) -> None:
    """Its positions are not told while it is open, so it is ended first; what it had not committed does not count."""
    need = needs(service, settings(cluster.kafka, cluster.naming.prefix))
    asked = admin(need.kafka["bootstrap.servers"])
    with pytest.raises(KafkaException, match="Timed out"):
        stored_positions(need, asked)
    look_at_cluster(need, asked)
    assert stored_positions(need, asked) == {(need.reads[0], 1): 5}
    with pytest.raises(KafkaException) as fenced:
        predecessor.commit_transaction(30)
    assert fenced.value.args[0].name() == "_FENCED"


def test_a_first_start_has_no_positions_afterwards(service: str, cluster: Cluster) -> None:
    """What is written to end a predecessor is never committed."""
    need = needs(service, settings(cluster.kafka, cluster.naming.prefix))
    asked = admin(need.kafka["bootstrap.servers"])
    look_at_cluster(need, asked)
    assert stored_positions(need, asked) == {}
