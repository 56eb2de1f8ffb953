"""The library's state store, written and read back by the batch instead of by the record.

The bytes on the disk and in the changelog are the library's own, so that a store of it can be opened here and back:
keys `<recipient>|state`, the headers of its records, its marks in the metadata. Only the way differs. Its own takes
each value through a cache of its own, each changelog record through a callback, and each record that is read back
through a write to the disk of its own: of an event, as long as to decide it, and of a restore nearly all.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Message
from quixstreams.kafka.consumer import raise_for_msg_error
from quixstreams.state.exceptions import InvalidChangelogOffset
from quixstreams.state.metadata import METADATA_CF_NAME
from quixstreams.state.recovery import RecoveryManager, RecoveryPartition
from quixstreams.state.rocksdb import RocksDBStore
from quixstreams.state.rocksdb.partition import RocksDBStorePartition
from rocksdict import WriteBatch

from processor.engine.changelog import FAMILY, FAMILY_HEADER, OFFSETS_HEADER, changelog_key
from processor.engine.copies import WRITTEN_AT, is_too_old, stamp

if TYPE_CHECKING:
    from processor.engine.quix_clients import WatchedProducer

_UNKNOWN = object()
RESTORE_BATCH = 2_000
"""The most changelog records that are read at once and written to the disk as one."""
SILENT_SECONDS = 60.0
"""A restore is stuck when nothing of it has come for so long, and a partition has no position."""
RESTORE_WAIT_SECONDS = 0.1
"""How long to wait for records of the changelog before looking whether its end is reached."""


class StateTransaction:
    """The states of one partition that one transaction has changed: what the library's checkpoint asks of such a
    thing, with one value for each recipient."""

    failed = False

    def __init__(self, partition: RecipientsPartition) -> None:
        self._partition = partition
        self._stored = partition.get_or_create_column_family(FAMILY)
        self._written: dict[bytes, bytes | None] = {}

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return bool(self._written)

    @property
    def changelog_topic_partition(self) -> tuple[str, int]:
        """Where the changes are logged."""
        changelog = self._partition.changelog
        return changelog.changelog_name, changelog.partition

    def read(self, recipient: bytes) -> bytes | None:
        """The state of a recipient as it is now."""
        key = changelog_key(recipient)
        found: Any = self._written.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._stored.get(key)
        return found  # type: ignore[no-any-return]

    def write(self, recipient: bytes, state: bytes | None) -> None:
        """Replace the state of a recipient; None removes it."""
        self._written[changelog_key(recipient)] = state

    def prepare(self, processed_offsets: Mapping[str, int] | None = None) -> None:
        """Write the changes to the changelog, each recipient's last one."""
        if not self._written:
            return
        changelog = self._partition.changelog
        offsets = json.dumps(processed_offsets, separators=(",", ":")).encode()
        headers = [
            (FAMILY_HEADER, FAMILY.encode()),
            (OFFSETS_HEADER, offsets),
        ]
        producer: WatchedProducer = changelog._producer
        last = len(self._written)
        for number, (key, state) in enumerate(self._written.items(), start=1):
            producer.write(
                changelog.changelog_name,
                key,
                state,
                headers,
                partition=changelog.partition,
                # The log keeps the order, so its last offset is the last record's.
                on_delivery=producer.delivered if number == last else None,
            )

    def flush(self, changelog_offset: int | None = None) -> None:
        """Write the changes to the disk, with the place in the changelog that they reach to."""
        if not self._written:
            return
        partition = self._partition
        before = partition.get_changelog_offset()
        if changelog_offset is not None and before is not None and changelog_offset < before:
            raise InvalidChangelogOffset(f"the changelog ended at {before} before, and at {changelog_offset} now")
        partition.write_all(self._written, changelog_offset)


class RecipientsPartition(RocksDBStorePartition):
    """One partition of the store."""

    @property
    def changelog(self) -> Any:
        """The library's writer to this partition's changelog."""
        return self._changelog_producer

    def begin(self) -> StateTransaction:  # type: ignore[override]
        """A transaction on it."""
        return StateTransaction(self)

    def write_all(self, changes: Mapping[bytes, bytes | None], changelog_offset: int | None) -> None:
        """Write changes as one."""
        batch = WriteBatch(raw_mode=True)
        family = self.get_column_family_handle(FAMILY)
        for key, state in changes.items():
            if state is None:
                batch.delete(key, family)
            else:
                batch.put(key, state, family)
        if changelog_offset is not None:
            self._update_changelog_offset(batch=batch, offset=changelog_offset)
            batch.put(WRITTEN_AT, stamp(), self.get_column_family_handle(METADATA_CF_NAME))
        self._write(batch)


class RecipientsStore(RocksDBStore):
    """The library's store, with partitions of the kind above, none of which is too old."""

    def create_new_partition(self, partition: int) -> RecipientsPartition:
        """As the library makes it; only the class is another."""
        made = super().create_new_partition(partition)
        written_at = made.get_or_create_column_family(METADATA_CF_NAME).get(WRITTEN_AT)
        if made.get_changelog_offset() is not None and is_too_old(partition, written_at):
            made.close()  # type: ignore[no-untyped-call]
            self.destroy_partition(partition)
            made = super().create_new_partition(partition)
        made.__class__ = RecipientsPartition
        assert isinstance(made, RecipientsPartition)  # noqa: S101 - for the type checker
        return made


class BatchRecovery(RecoveryManager):
    """The library's restore, with another loop: it reads and writes many records at once, and sees the end at once."""

    _heard_at = 0.0

    def _recovery_loop(self) -> None:
        self._heard_at = time.monotonic()
        while self.recovering:
            self._log_recovery_progress()
            messages: list[Any] = list(self._consumer.consume(RESTORE_BATCH, RESTORE_WAIT_SECONDS))
            if messages:
                self._heard_at = time.monotonic()
            places: dict[int, list[Message]] = defaultdict(list)
            for message in messages:
                raise_for_msg_error(message)
                if message.topic() in self._topic_manager.non_changelog_topics:
                    self._rewind_data_partition(message)
                else:
                    places[message.partition()].append(message)
            for number, found in places.items():
                recovering = self._recovery_partitions.get(number, {}).get(found[0].topic())
                # The rest of a partition that was taken away is of no use.
                if recovering is not None:
                    _apply(recovering, found)
            if messages:
                self._consumer._broker_available()  # type: ignore[no-untyped-call]
            # The library asks for a position once a second at the most, and would see the end that much later.
            self._position_cache.clear()
            self._update_recovery_status()  # type: ignore[no-untyped-call]
            if self._broker_availability_timeout:
                self._consumer.raise_if_broker_unavailable(self._broker_availability_timeout)

    def _check_invalid_offset_threshold(self, rp: RecoveryPartition, reason: str) -> None:
        # The library takes a partition that has no position for lost after sixty looks, of which it makes one a second.
        # This loop looks after each batch, and a partition has no position while the records of others come first.
        if time.monotonic() - self._heard_at > SILENT_SECONDS:
            super()._check_invalid_offset_threshold(rp, reason)


def _apply(recovering: RecoveryPartition, messages: list[Message]) -> None:
    """Write what a partition's changelog says."""
    partition = recovering._store_partition
    assert isinstance(partition, RecipientsPartition)  # noqa: S101 - the store above makes no other
    changes: dict[bytes, bytes | None] = {}
    known: bytes | None = None
    counts = True
    for message in messages:
        headers = dict(message.headers() or ())
        offsets = headers.get(OFFSETS_HEADER, b"null")
        if offsets != known:
            # One transaction's records say the same.
            known = offsets
            processed = json.loads(offsets)
            counts = processed is None or recovering._should_apply_changelog(processed)
        if counts and headers.get(FAMILY_HEADER) == FAMILY.encode():
            changes[message.key()] = message.value()
    partition.write_all(changes, messages[-1].offset())
