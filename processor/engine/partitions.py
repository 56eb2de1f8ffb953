"""The states of the partitions that an instance holds, and how they are read back from the changelog."""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from processor.engine.changelog import FAMILY, FAMILY_HEADER, changelog_key
from processor.engine.config import ProcessorConfig
from processor.engine.port import EngineError

RESTORE_BATCH = 2_000
"""The most changelog records that are read at once and written to the disk as one."""
RESTORE_WAIT_SECONDS = 0.1
SILENT_SECONDS = 60.0
"""A restore is stuck when nothing of it has come for so long."""
REQUEST_SECONDS = 15.0


class PartitionStore(Protocol):
    """The local copy of one partition of the changelog: what its records say, by key, and how far it reaches."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        ...

    def apply(self, changes: Mapping[bytes, bytes | None], offset: int | None) -> None:
        """Write changes and the changelog offset that they reach to as one; None removes a key."""
        ...

    def offset(self) -> int | None:
        """The changelog offset that the copy reaches to; None if it is empty."""
        ...

    def reset(self) -> None:
        """Forget everything."""
        ...


class OpenPartition:
    """One partition's states as they are within a transaction; a `port.StateStore`."""

    def __init__(self, store: PartitionStore) -> None:
        self._store = store
        self.changes: dict[bytes, bytes | None] = {}
        """What the transaction has written, by the changelog's keys."""
        self.written_to: int | None = None
        """The changelog offset of the last of it."""

    def read(self, key: bytes) -> bytes | None:
        """See `port.StateStore`."""
        stored = changelog_key(key)
        if stored in self.changes:
            return self.changes[stored]
        return self._store.get(stored)

    def write(self, key: bytes, value: bytes | None) -> None:
        """See `port.StateStore`."""
        self.changes[changelog_key(key)] = value

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """The last record of the changes is written, or not; a transaction of which one is not cannot be committed."""
        if error is None:
            self.written_to = message.offset()

    def keep(self) -> None:
        """The transaction is committed: its changes go to the store."""
        if not self.changes:
            return
        self._store.apply(self.changes, self.written_to)
        self.changes = {}
        self.written_to = None


def restore(
    config: ProcessorConfig, changelog: str, stores: Mapping[int, PartitionStore], wanted: Callable[[], bool]
) -> int:
    """Bring stores up to the end of their changelog, and return how many records that took.

    The end is that of the log itself, and not of what is committed of it: where a transaction of an instance that is
    gone is still open, its end is waited for. The positions must have been asked for before. Whatever they contain is
    below that end then, and whatever comes later is fenced.

    Args:
        config: the processor's.
        changelog: the topic.
        stores: by partition.
        wanted: asked again and again; when it says no, the rest is left.

    Raises:
        EngineError: nothing came for a minute.
        KafkaException: the changelog cannot be read.
    """
    settings = {
        **config.kafka,
        # Asked for by the client, and never joined.
        "group.id": config.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 50,
    }
    ends = Consumer({**settings, "isolation.level": "read_uncommitted"})
    reader = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        begins, open_ends = {}, {}
        for partition, store in stores.items():
            low, high = ends.get_watermark_offsets(TopicPartition(changelog, partition), timeout=REQUEST_SECONDS)
            begins[partition] = _begin(store, low, high)
            if begins[partition] < high:
                open_ends[partition] = high
        reader.assign([TopicPartition(changelog, partition, begins[partition]) for partition in open_ends])
        return _read(config, reader, stores, open_ends, wanted)
    finally:
        reader.close()
        ends.close()


def _begin(store: PartitionStore, low: int, high: int) -> int:
    reached = store.offset()
    if reached is not None and low - 1 <= reached < high:
        return reached + 1
    if reached is not None:
        # The changelog is not the one that this was copied from.
        store.reset()
    return low


def _read(
    config: ProcessorConfig,
    reader: Consumer,
    stores: Mapping[int, PartitionStore],
    ends: dict[int, int],
    wanted: Callable[[], bool],
) -> int:
    heard_at, count = time.monotonic(), 0
    while ends and wanted():
        config.beat()
        messages = reader.consume(RESTORE_BATCH, RESTORE_WAIT_SECONDS)
        if messages:
            heard_at = time.monotonic()
        elif time.monotonic() - heard_at > SILENT_SECONDS:
            raise EngineError(f"nothing came of the changelog's partitions {sorted(ends)} for {SILENT_SECONDS:.0f} s")
        changes: dict[int, dict[bytes, bytes | None]] = {}
        reached: dict[int, int] = {}
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                # Where a transaction is open, this is where it began; it comes again behind it.
                if offset >= ends.get(partition, offset):
                    ends.pop(partition, None)
                continue
            count += 1
            reached[partition] = offset
            if dict(message.headers() or ()).get(FAMILY_HEADER) == FAMILY.encode():
                changes.setdefault(partition, {})[message.key()] = message.value()
        for partition, offset in reached.items():
            stores[partition].apply(changes.get(partition, {}), offset)
    return count
