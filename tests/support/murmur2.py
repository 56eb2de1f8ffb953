"""Java's murmur2 and Kafka's default partitioner, written from their definition, to judge what the client does."""

from __future__ import annotations

_M, _MASK = 0x5BD1E995, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The signed 32-bit hash of `org.apache.kafka.common.utils.Utils.murmur2`."""
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >= 1 << 31 else h


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key that is not null: the hash made positive, modulo the number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
