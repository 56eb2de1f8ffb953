"""The delayer when processes die, move, collide, or lose Kafka: each record exactly once."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from deploy.local.kafka import EmbeddedKafka
from deploy.topics import ensure_topics
from relay.delays.progress import decode_done
from schemas.topics import TIERS, Naming
from tests.integration.delays.conftest import Delayed, lateness
from tests.support.eventually import eventually

ALL_PARTITIONS = 2 * len(TIERS)


def exactly_once(delayed: Delayed, dues: list[int], timeout: float = 40.0) -> None:
    """Every record is in `due` once, none early; called again after all delayers have ended, nothing may have come."""
    records = delayed.due(len(dues), timeout)
    assert sorted(record.value for record in records) == sorted(f"{n}:{due}".encode() for n, due in enumerate(dues))
    assert lateness(records)[0] >= 0


def progress(delayed: Delayed, topic: str) -> dict[int, tuple[int, set[int]]]:
    """What is committed for a topic, by partition: the offset and what is done above it."""
    consumer = Consumer(
        {
            "bootstrap.servers": delayed.kafka,
            "group.id": f"{delayed.prefix}rung-delays",
            "isolation.level": "read_committed",
        }
    )
    try:
        found = consumer.committed([TopicPartition(delayed.prefix + topic, p) for p in range(2)], timeout=10)
    finally:
        consumer.close()
    return {at.partition: (at.offset, decode_done(at.offset, at.metadata)) for at in found if at.offset >= 0}


def test_killed_processes_neither_lose_nor_repeat(delayed: Delayed) -> None:
    """kill -9 three times in the middle of unordered waits: after each restart it goes on where it stood."""
    draw = random.Random(3)
    process = delayed.process()
    dues = delayed.put([draw.randrange(1_000, 6_000) for _ in range(1_500)], tier="5s")
    for part in (200, 500, 900):
        delayed.due(part)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process = delayed.process()
    exactly_once(delayed, dues)
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    exactly_once(delayed, dues)
    assert all(not done for _, done in progress(delayed, "delay.5s").values())


def test_what_left_out_of_order_is_committed_as_such(delayed: Delayed) -> None:
    """While the first record still waits, those forwarded behind it stand in the committed metadata; a restarted
    process waits for the first one and does not repeat the others."""
    process = delayed.process()
    dues = delayed.put([8_000, *([800] * 40)], tier="30s", key=lambda _: "one")
    delayed.due(40)
    ((low, done),) = eventually(lambda: list(progress(delayed, "delay.30s").values()))
    assert (low, done) == (0, set(range(1, 41)))
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    delayed.process()
    exactly_once(delayed, dues)


def test_a_stop_is_quick_and_leaves_what_waits(delayed: Delayed) -> None:
    """SIGTERM with records in memory: exit 0 at once, and the next process forwards them at their moment."""
    process = delayed.process()
    dues = delayed.put([100, 5_000, 5_100])
    delayed.due(1)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    assert time.monotonic() - began < 3
    delayed.process()
    exactly_once(delayed, dues)


def test_partitions_move_to_a_second_instance_and_back(delayed: Delayed) -> None:
    """1 → 2 → 1 instances while records flow: both work, the stopped one's partitions move, each record once."""
    first = delayed.thread("a")
    eventually(lambda: first.value("rung_delays_partitions") == ALL_PARTITIONS)
    dues = delayed.put([300 + 25 * number for number in range(400)], tier="5s")
    second = delayed.thread("b")
    eventually(lambda: 0 < second.value("rung_delays_partitions") < ALL_PARTITIONS)
    eventually(lambda: first.value("rung_delays_partitions") + second.value("rung_delays_partitions") == ALL_PARTITIONS)
    second.stop()
    eventually(lambda: first.value("rung_delays_partitions") == ALL_PARTITIONS, timeout=20)
    exactly_once(delayed, dues)
    first.stop()
    exactly_once(delayed, dues)
    assert first.error is None
    assert second.error is None


def test_a_second_process_with_the_same_name_ends_the_first(delayed: Delayed) -> None:
    """Two with one instance id cannot both run: the older one ends with an error, and nothing is repeated."""
    older = delayed.process("same")
    dues = delayed.put([50 * number for number in range(120)], tier="5s")
    delayed.due(10)
    delayed.process("same")
    logs = [delayed.folder / f"delays-{number}.log" for number in range(2)]
    # They fence each other in turn, and one that is idle hears of it after a session time-out of ten seconds.
    eventually(lambda: older.poll() is not None, 60, describe=lambda: "\n\n".join(log.read_text() for log in logs))
    assert older.returncode != 0
    exactly_once(delayed, dues)
    assert "fatal_kafka_error" in logs[0].read_text()


@pytest.mark.timeout(240)
def test_a_broker_that_is_away_delays_and_loses_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, topic_prefix: str
) -> None:
    """The broker goes away with records in memory and comes back: each record once, none early."""
    if request.config.getoption("--kafka") != "embedded":
        pytest.skip("only an embedded broker can be stopped here")
    with EmbeddedKafka(tmp_path / "kafka") as broker:
        ensure_topics({"bootstrap.servers": broker.bootstrap_servers}, Naming(topic_prefix), partitions=2)
        delayed = Delayed(broker.bootstrap_servers, topic_prefix, tmp_path)
        try:
            running = delayed.thread()
            dues = delayed.put([200 + 20 * number for number in range(400)], tier="5s")
            delayed.due(20)
            broker.restart()
            exactly_once(delayed, dues, timeout=90)
            running.stop()
            exactly_once(delayed, dues)
            assert running.error is None
        finally:
            delayed.close()
