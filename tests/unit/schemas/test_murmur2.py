"""The partition of a key, as every Java client computes it: known answers that must never change."""

import pytest

from schemas.codec import encode_key
from schemas.partitioner import murmur2, partition_of
from schemas.topics import PARTITIONER

# Apache Kafka's own vectors (clients, UtilsTest.testMurmur2).
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), JAVA.items())
def test_the_hash_is_javas(key: bytes, hashed: int) -> None:
    """Our reading of the hash gives what Apache Kafka's own tests expect."""
    assert murmur2(key) == hashed


def test_the_hash_decides_the_partition() -> None:
    """A negative hash loses its sign bit and is not negated."""
    assert partition_of(b"21", 12) == (-973932308 & 0x7FFFFFFF) % 12
    assert partition_of(b"abc", 12) == 479470107 % 12


def test_the_catalogue_names_that_partitioner() -> None:
    """What every producer of ours is configured with is librdkafka's name for Java's default."""
    assert PARTITIONER == "murmur2_random"
    assert encode_key("abc") == b"abc"
