"""The partitions of a Faust table's store, for one who knows the partition: RocksDB or memory.

Faust's own way in and out of a store finds the partition by the record that an agent has in hand, writes a RocksDB
store and its place in the changelog in two steps, and keeps in memory what was revoked. Here the partition is named,
state and place are one write, and a share begins with what the changelog says.
"""

import gc
import shutil
from collections.abc import Mapping
from typing import Any

import rocksdict
from faust.stores import memory, rocksdb
from faust.types.tables import TableT

from processor.engine.copies import WRITTEN_AT, is_too_old, stamp
from processor.engine.partitions import PartitionStore
from processor.engine.port import EngineError


def partition_of(table: TableT[Any, Any], partition: int) -> PartitionStore:
    """One partition of a table's store.

    Raises:
        EngineError: there is no such way into this store.
    """
    store = table.data
    if isinstance(store, rocksdb.Store):
        return RocksPartition(store, partition)
    if isinstance(store, memory.Store):
        return MemoryPartition(store, partition)
    raise EngineError(f"the processor keeps its state in Faust's stores rocksdb:// and memory://, not {store}")


class RocksPartition:
    """A partition on the disk, in the database that Faust has opened for it."""

    def __init__(self, store: rocksdb.Store, partition: int) -> None:
        self._store = store
        self._partition = partition
        self._db: Any = store._db_for_partition(partition)
        if self.offset() is not None and is_too_old(partition, self._db.get(WRITTEN_AT)):
            self.reset()

    def get(self, key: bytes) -> bytes | None:
        """See `PartitionStore`."""
        return self._db.get(key)  # type: ignore[no-any-return]

    def apply(self, changes: Mapping[bytes, bytes | None], offset: int | None) -> None:
        """See `PartitionStore`."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        if offset is not None:
            batch.put(self._store.offset_key, str(offset).encode())
            batch.put(WRITTEN_AT, stamp())
        self._db.write(batch)

    def offset(self) -> int | None:
        """See `PartitionStore`."""
        found = self._db.get(self._store.offset_key)
        return None if found is None else int(found)

    def reset(self) -> None:
        """See `PartitionStore`."""
        self._store._dbs.pop(self._partition, None)
        self._db.close()
        self._db = None
        gc.collect()
        shutil.rmtree(self._store.partition_path(self._partition))
        self._db = self._store._db_for_partition(self._partition)


class MemoryPartition:
    """A partition in Faust's dictionary; it begins empty, whatever an earlier share left there."""

    def __init__(self, store: memory.Store[Any, Any], partition: int) -> None:
        self._data = store.data
        self._partitions = store._key_partition
        self._partition = partition
        self.reset()

    def get(self, key: bytes) -> bytes | None:
        """See `PartitionStore`."""
        return self._data.get(key)

    def apply(self, changes: Mapping[bytes, bytes | None], offset: int | None) -> None:  # noqa: ARG002
        """See `PartitionStore`."""
        for key, value in changes.items():
            if value is None:
                self._data.pop(key, None)
                self._partitions.pop(key, None)
            else:
                self._data[key] = value
                self._partitions[key] = self._partition

    def offset(self) -> int | None:
        """See `PartitionStore`."""
        return None

    def reset(self) -> None:
        """See `PartitionStore`."""
        for key in [key for key, partition in self._partitions.items() if partition == self._partition]:
            del self._data[key]
            del self._partitions[key]
