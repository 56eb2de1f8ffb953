"""Where a record of a recipient belongs: Kafka's default partitioner, as every Java client computes it.

The writers leave the choice to their client library (`topics.PARTITIONER`). A reader uses this to notice a record that
another program put elsewhere: it would be decided against a state in which nothing is known of its recipient.
"""

import struct
from functools import lru_cache

_M, _MASK = 0x5BD1E995, 0xFFFFFFFF


@lru_cache(maxsize=256)
def _words(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")


def murmur2(data: bytes) -> int:
    """The signed 32-bit hash of `org.apache.kafka.common.utils.Utils.murmur2`."""
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for k in _words(whole >> 2).unpack_from(data):
        k = k * _M & _MASK
        h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >= 1 << 31 else h


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key that is not null: the hash without its sign bit, modulo the number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
