"""End what an earlier process of this instance left open in Kafka: its positions cannot be read before."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartition

from deploy.probes import quiet_consumer, quiet_producer


def end(kafka: Mapping[str, str], transactional_id: str, group: str, place: tuple[str, int], seconds: float) -> None:
    """Take over a transactional id, and abort what its last holder had not committed.

    To take over is enough as a rule. But a group coordinator that was restarted in the middle of a commit may keep a
    position pending for ever whose transaction the log has ended long ago: every question for it is answered "not
    yet", and the partition stands still (seen with Kafka 4.2 killed under load). Only the end of a transaction of the
    same producer that takes part in the group clears that, so there is one here: a position that is aborted at once.

    Args:
        kafka: librdkafka settings.
        transactional_id: the instance's.
        group: the consumer group in whose name it commits.
        place: a topic and partition that the group reads; no position of it is changed.
        seconds: how long each of the requests may take.

    Raises:
        KafkaException: the cluster cannot be asked, or refuses.
    """
    producer = quiet_producer(kafka, transactional_id, seconds)
    consumer = quiet_consumer(kafka, group, seconds)
    try:
        producer.init_transactions(seconds)
        producer.begin_transaction()
        offset = TopicPartition(*place, 0)
        producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), seconds)
        producer.abort_transaction(seconds)
    finally:
        consumer.close()
