"""The topic that holds the state: its settings, its records, and its creation.

The records are as quixstreams writes them, whichever engine does, so that a system can go from one engine to another:
keys `<recipient>|state`, the state as the value, two headers.
"""

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from processor.engine.config import ProcessorConfig, changelog_name
from processor.engine.handler import MAX_STATE_BYTES
from processor.engine.port import EngineError
from schemas.topics import DAY_MS

MAX_RECORD_BYTES = 2 * MAX_STATE_BYTES
"""The largest record written: a state, or a dead letter (the largest input and its marks)."""
CHANGELOG_CONFIG = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(MAX_RECORD_BYTES),
    # Compaction leaves the newest segment alone. A restore reads what it left, so segments are small; and an erased
    # person's old states are gone after a day and the time that the cleaner takes.
    "segment.bytes": str(64 * 1024 * 1024),
    "max.compaction.lag.ms": str(DAY_MS),
    # Twice the age that a local copy may have (`copies`).
    "delete.retention.ms": str(DAY_MS),
}
FAMILY = "default"
FAMILY_HEADER = "__column_family__"
OFFSETS_HEADER = "__processed_tp_offsets__"
"""The positions that a record's transaction brought its inputs to, as JSON; `null` claims nothing."""
SUFFIX = b"|state"


def changelog_key(recipient: bytes) -> bytes:
    """The key of a recipient's state, on the disk and in the changelog."""
    return recipient + SUFFIX


def ensure_changelog(config: ProcessorConfig, inputs: Iterable[str], timeout: float = 30.0) -> int:
    """Create the topic that holds the state, if it is missing, and return how many partitions the inputs have.

    Raises:
        EngineError: an input is missing, or the inputs differ in their number of partitions.
        KafkaException: the cluster cannot be reached, or refuses.
    """
    names = sorted(inputs)
    changelog = changelog_name(config.group, names)
    admin = AdminClient(dict(config.kafka))
    existing = admin.list_topics(timeout=timeout).topics
    if missing := [name for name in names if name not in existing]:
        raise EngineError(f"topics are missing: {', '.join(missing)}; create the catalogue's topics first")
    counts = {name: len(existing[name].partitions) for name in names}
    if len(set(counts.values())) != 1:
        raise EngineError(f"the inputs must have the same number of partitions, and have {counts}")
    if changelog in existing:
        return counts[names[0]]
    replicas = max(len(existing[name].partitions[0].replicas) for name in names)
    new = NewTopic(changelog, counts[names[0]], replication_factor=replicas, config=CHANGELOG_CONFIG)
    future = admin.create_topics([new], operation_timeout=timeout)[changelog]
    try:
        future.result(timeout)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    deadline = time.monotonic() + timeout
    while changelog not in admin.list_topics(timeout=timeout).topics:
        if time.monotonic() > deadline:
            raise EngineError(f"topic {changelog} was created and is not to be seen after {timeout} s")
        time.sleep(0.05)
    return counts[names[0]]
