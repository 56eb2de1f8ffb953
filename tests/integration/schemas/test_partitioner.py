"""A key's partition on a real Kafka: what our producers do is what a Java service does."""

from schemas.codec import encode_key
from schemas.partitioner import partition_of
from schemas.topics import PARTITIONER
from tests.support.kafka import PRODUCER_SETTINGS, create_topics, produce

RECIPIENTS = [
    "a",
    "ab",
    "abc",
    "abcd",
    "foobar",
    "customer-4711",
    "zoë",
    "zoe\u0308",
    "مستلم",
    "👋",
    "\x00",
    "x" * 1000,
]


def test_the_client_agrees_with_java(kafka: str, unique: str) -> None:
    """For short and long keys of every remainder modulo four, also beyond ASCII, and for several numbers of
    partitions, the client puts a record where Java's default partitioner would."""
    assert PRODUCER_SETTINGS["partitioner"] == PARTITIONER
    keys = [encode_key(recipient) for recipient in [*RECIPIENTS, *(f"r{i}" for i in range(200))]]
    topics = {f"{unique}-{partitions}": partitions for partitions in (2, 7, 12)}
    create_topics(kafka, topics)
    for topic, partitions in topics.items():
        placed = [record.partition for record in produce(kafka, topic, [(key, b"{}") for key in keys])]
        assert placed == [partition_of(key, partitions) for key in keys]
        assert len(set(placed)) == partitions
