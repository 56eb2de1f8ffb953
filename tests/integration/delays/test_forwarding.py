"""The delayer on real Kafka: never early, soon after, in order, and unchanged."""

from __future__ import annotations

import os
import random
from collections import Counter

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from schemas.topics import TIERS
from tests.integration.delays.conftest import Delayed, lateness
from tests.support.eventually import eventually
from tests.support.header_names import send_with_header_name
from tests.support.kafka import Record, produce, produce_compressed, read_all


def test_short_waits_are_never_early_and_soon_over(delayed: Delayed) -> None:
    """300 unordered waits below two seconds: each arrives once, none early, and none waits behind a later one."""
    running = delayed.thread()
    eventually(lambda: running.value("rung_delays_partitions") == 2 * len(TIERS))
    draw = random.Random(1)
    delayed.put([draw.randrange(100, 2_000) for _ in range(300)])
    records = delayed.due(300)
    late = lateness(records)
    assert len({record.value for record in records}) == len(records) == 300
    assert late[0] >= 0
    # A machine that is busy with other tests may stand still for a moment; half of the records show how it should be.
    assert late[150] < 250
    assert late[-1] < 2_000
    # Counted when the commit is known, which is after its records can be read.
    eventually(lambda: running.value("rung_delays_due_lag_seconds_count") == 300)


def test_a_backlog_is_not_held_up_by_the_pause_between_transactions(delayed: Delayed) -> None:
    """Ten full transactions follow one another at once, whatever the least time between two that are not full."""
    delayed.put([0] * 200)
    delayed.thread(batch_size=20, transaction_interval_seconds=10.0)
    assert len(delayed.due(200, timeout=30.0)) == 200


def test_records_arrive_in_the_order_of_their_moments(delayed: Delayed) -> None:
    """Appended in any order, the records of a partition leave in the order of their moments, ties in the topic's."""
    running = delayed.thread()
    eventually(lambda: running.value("rung_delays_partitions") == 2 * len(TIERS))
    waits = [3_000 + 10 * (number // 2) for number in range(200)]
    random.Random(2).shuffle(waits)
    delayed.put(waits, tier="5s")
    by_partition: dict[int, list[tuple[int, int]]] = {}
    for record in delayed.due(200):
        number, due = (record.value or b"").decode().split(":")
        by_partition.setdefault(record.partition, []).append((int(due), int(number)))
    assert all(rows == sorted(rows) for rows in by_partition.values())


def test_a_mix_of_tiers_hops_to_its_moment(delayed: Delayed) -> None:
    """Longer waits go through the tiers that fit; bytes, key, headers and partition stay as they were."""
    delayed.put([150, 1_000, 1_450, 2_999, 4_999, 5_000, 5_500, 6_100, 7_200], key=lambda n: f"é{n % 3}")
    before = {r.value: r for r in read_all(delayed.kafka, [f"{delayed.prefix}delay.{t}" for t in ("1s", "5s")], 9)}
    running = delayed.thread()
    records = delayed.due(9)
    assert {record.value for record in records} == set(before)
    for record in records:
        original = before[record.value]
        assert (record.key, record.headers, record.partition) == (original.key, original.headers, original.partition)
    late = lateness(records)
    assert late[0] >= 0
    assert late[-1] < 2_000
    hops = Counter(r.value for r in read_all(delayed.kafka, [f"{delayed.prefix}delay.{t}" for t in ("1s", "5s")]))
    assert max(hops.values()) <= 5
    eventually(lambda: running.value("rung_delays_forwarded_total", target="due") == 9)
    assert running.value("rung_delays_forwarded_total", target="1s") == sum(hops.values()) - 9


def test_what_is_malformed_is_set_aside_and_the_rest_goes_on(delayed: Delayed) -> None:
    """Each bad record is one dead letter with its reason and its bytes; a good one behind them arrives."""
    running = delayed.thread()
    large = os.urandom(990_000)
    rows: list[tuple[str | bytes | None, bytes | None, dict[str, str | bytes]]] = [
        (None, b"1", {"due_at": "5"}),
        (b"\xff\xfe", b"2", {"due_at": "5"}),
        ("k", b"3", {"other": "5"}),
        ("k", b"4", {"due_at": "tomorrow"}),
        ("k", None, {"due_at": "5"}),
        ("k", b"\xff no json", {"due_at": "6"}),
        ("k", large, {"due_at": "7"}),
    ]
    produce(delayed.kafka, f"{delayed.prefix}delay.1s", rows, partition=0)
    send_with_header_name(delayed.kafka, f"{delayed.prefix}delay.1s", b"k", b"8", b"\xff")
    assert {record.value for record in delayed.due(2)} == {b"\xff no json", large}
    *letters, nameless = sorted(read_all(delayed.kafka, f"{delayed.prefix}dead-letters", 6), key=_value)
    assert (nameless.value, nameless.header("rung_dl_reason")) == (b"8", "bad_header")
    assert Counter(letter.header("rung_dl_reason") for letter in letters) == {
        "null_key": 1,
        "key_not_utf8": 1,
        "missing_header": 1,
        "bad_header": 1,
        "null_value": 1,
    }
    assert {(letter.key, letter.value) for letter in letters} == {(self_key(k), v) for k, v, _ in rows[:5]}
    assert {letter.header("rung_dl_offset") for letter in letters} == {"0", "1", "2", "3", "4"}
    eventually(lambda: running.value("rung_dead_letters_total", service="delays", reason="null_key") == 1)


def _value(letter: Record) -> bytes:
    return letter.value or b"5"


def self_key(key: str | bytes | None) -> bytes | None:
    """A key as it lies in the topic."""
    return key.encode() if isinstance(key, str) else key


def test_a_record_that_the_target_refuses_is_set_aside(delayed: Delayed) -> None:
    """A topic whose limit was lowered refuses a record: it becomes a dead letter, and others are not held up."""
    admin = AdminClient({"bootstrap.servers": delayed.kafka})
    entry = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, f"{delayed.prefix}due", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)
    large = os.urandom(5_000)
    rows = [("k", b"before", {"due_at": "5"}), ("k", large, {"due_at": "5"}), ("k", b"after", {"due_at": "5"})]
    produce(delayed.kafka, f"{delayed.prefix}delay.1s", rows, partition=0)
    delayed.thread()
    assert [record.value for record in delayed.due(2)] == [b"before", b"after"]
    (letter,) = read_all(delayed.kafka, f"{delayed.prefix}dead-letters", 1)
    assert (letter.header("rung_dl_reason"), letter.value) == ("too_large", large)


def test_a_record_that_is_too_large_for_any_topic_is_set_aside(delayed: Delayed) -> None:
    """Compressed it was small enough: without its value it is a dead letter, and others are not held up."""
    topic = f"{delayed.prefix}delay.1s"
    for key, value in ((3, 40_000_000), (9_000_000, 10)):
        produce_compressed(delayed.kafka, topic, b"k" * key, b"x" * value, {"due_at": b"5"})
    produce(delayed.kafka, topic, [("k", b"after", {"due_at": "5"})], partition=0)
    delayed.thread()
    assert [record.value for record in delayed.due(1)] == [b"after"]
    letters = read_all(delayed.kafka, f"{delayed.prefix}dead-letters", 2)
    assert sorted((x.key or b"", x.value, x.header("rung_dl_reason")) for x in letters) == [
        (b"", None, "too_large"),
        (b"kkk", None, "too_large"),
    ]


def test_reading_ahead_is_bounded_and_goes_on(delayed: Delayed) -> None:
    """With room for five records per partition, a hundred still arrive, each once: paused partitions are resumed."""
    running = delayed.thread(read_ahead=5, read_ahead_last=5)
    delayed.put([500 + 5 * number for number in range(100)], tier="1s")
    records = delayed.due(100)
    assert len({record.value for record in records}) == 100
    assert lateness(records)[0] >= 0
    eventually(lambda: running.value("rung_delays_forwarded_total", target="due") == 100)
