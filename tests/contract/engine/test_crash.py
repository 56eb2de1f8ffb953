"""A processor that is killed, stopped, or met by what it cannot survive: real processes on a real Kafka."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from itertools import count

import pytest

from schemas import records as r
from schemas.profile import Profile
from schemas.topics import DELIVERIES, DELIVERY_EVENTS, NOTIFICATIONS, PROCESSOR_INPUTS, RESOLUTIONS
from tests.support.engine import KafkaUnderTest, RawRecord, StartOnKafka, Written, notify, raw
from tests.support.engine_process import CRASH_POINTS
from tests.support.eventually import eventually
from tests.support.kafka import produce, read_all

PEOPLE = [f"person-{i}" for i in range(40)]
pytestmark = pytest.mark.timeout(240)  # several starts of a process each, on whatever machine there is


def load(first: int, last: int) -> dict[str, list[RawRecord]]:
    """Rounds of a notification and a resolution for everybody, by topic; the `ce_id` of each occurs once."""
    notifications, resolutions = [], []
    for round_no in range(first, last):
        for person in PEOPLE:
            key = f"k{round_no}"
            notifications.append(raw(notify(person, key), f"n|{person}|{round_no}"))
            resolve = r.Resolve(recipient=person, dedup_key=key, resolution="paid")
            resolutions.append(raw(resolve, f"r|{person}|{round_no}"))
    return {NOTIFICATIONS.name: notifications, RESOLUTIONS.name: resolutions}


def send(processor: KafkaUnderTest, rounds: tuple[int, int]) -> int:
    """Put the load of some rounds into the inputs; returns how many records that is."""
    records = load(*rounds)
    for topic in (NOTIFICATIONS, RESOLUTIONS):
        processor.send(topic, records[topic.name])
    return sum(map(len, records.values()))


def check_exactly_once(events: list[Written], expected: int) -> None:
    """Each input came out once, and each recipient's counter has no gap and no repeat."""
    repeated = [ce_id for ce_id, times in Counter(e.header("ce_id") for e in events).items() if times > 1]
    assert (len(events), repeated[:5]) == (expected, [])
    per_person: dict[str, list[int | None]] = {person: [] for person in PEOPLE}
    for event in events:
        per_person[event.event.recipient].append(event.event.attempt)
    each = expected // len(PEOPLE)
    wrong = [person for person, counted in per_person.items() if counted != list(range(1, each + 1))]
    assert not wrong, f"counters with gaps or repeats: {wrong}"


def test_killed_under_load_each_input_comes_out_once(on_kafka: StartOnKafka) -> None:
    """Killed four times in the middle of a backlog: outputs, state and offsets agree for every recipient."""
    processor = on_kafka()
    sent, interrupted = 0, 0
    for round_no in range(4):
        # Counted before there is new work: afterwards a fast processor may have done all of it.
        before = len(processor.written_now(DELIVERY_EVENTS))
        sent += send(processor, (round_no * 50, round_no * 50 + 50))
        processor.written(DELIVERY_EVENTS, before + 100)
        processor.kill()
        interrupted += len(processor.written_now(DELIVERY_EVENTS)) < sent
        processor.start()
    check_exactly_once(processor.written(DELIVERY_EVENTS, sent), sent)
    assert interrupted, "no kill came while there was work"


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_dead_at_each_point_of_a_transaction(on_kafka: StartOnKafka, point: str) -> None:
    """The process dies at each seam between its steps in turn, and its successor makes it whole."""
    processor = on_kafka(crash_at=point)
    rounds = count()
    sent = 0

    def dead() -> bool:
        # A commit may take in all there is: only more work makes sure of the next one.
        nonlocal sent
        if processor.process.poll() is None:
            first = next(rounds) * 4
            sent += send(processor, (first, first + 4))
        return processor.process.poll() is not None

    eventually(dead, timeout=30, interval=0.2, describe=lambda: processor.log[-3000:])
    assert processor.process.returncode == -signal.SIGKILL, processor.log[-3000:]
    processor.start(crash_at="")
    check_exactly_once(processor.written(DELIVERY_EVENTS, sent), sent)


def test_the_real_decision_killed_under_load(on_kafka: StartOnKafka) -> None:
    """With the domain's decision: every notification is accepted once and claimed once, whatever was killed."""
    processor = on_kafka(decision="decide")
    profile = Profile(addresses={"email": "someone@example.test"})
    processor.send(NOTIFICATIONS, [raw(r.PutRecipient(recipient=p, profile=profile), f"p|{p}") for p in PEOPLE])
    keys = [f"k{number}" for number in range(15)]
    notifications = [raw(notify(p, key), f"n|{p}|{key}") for key in keys for p in PEOPLE]
    for round_no in range(3):
        # The relay may publish a row again: all of them, each time.
        processor.send(NOTIFICATIONS, notifications)
        processor.written(DELIVERY_EVENTS, (round_no + 1) * 100)
        processor.kill()
        processor.start()

    def first_claims() -> list[Written]:
        return [w for w in processor.written_now(DELIVERIES) if w.value and b'"claim":1,' in w.value]

    eventually(lambda: len(first_claims()) >= len(notifications), timeout=60, interval=0.5)
    # The last start may still be at its imports.
    eventually(lambda: processor.has_started, timeout=20)
    assert processor.stop() == 0
    # A claim that nobody answers for half a minute is made again, with a number and an id of its own.
    deliveries = Counter(w.header("ce_id") for w in processor.written_now(DELIVERIES))
    assert max(deliveries.values()) == 1
    assert len(first_claims()) == len(notifications)
    events = processor.written_now(DELIVERY_EVENTS)
    assert max(Counter(e.header("ce_id") for e in events).values()) == 1
    accepted = [e for e in events if e.header("ce_type") == "rung.notification.accepted"]
    assert len(accepted) == len(notifications)


def test_killed_and_the_disk_lost(on_kafka: StartOnKafka) -> None:
    """A kill and an empty state directory: the changelog alone restores what was counted."""
    processor = on_kafka()
    sent = send(processor, (0, 10))
    processor.written(DELIVERY_EVENTS, sent // 2)
    processor.kill()
    lose_disk(processor)
    processor.start()
    sent += send(processor, (10, 20))
    check_exactly_once(processor.written(DELIVERY_EVENTS, sent), sent)


def lose_disk(processor: KafkaUnderTest) -> None:
    """Remove the local state."""
    shutil.rmtree(processor.state_dir)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_asked_to_end_under_load_it_ends_in_order(on_kafka: StartOnKafka, number: signal.Signals) -> None:
    """Asked to end while it works, it exits 0 within its limit; its successor repeats nothing and loses nothing."""
    processor = on_kafka()
    sent = send(processor, (0, 50))
    processor.written(DELIVERY_EVENTS, 100)
    assert processor.stop(number, timeout=10) == 0
    processor.start()
    check_exactly_once(processor.written(DELIVERY_EVENTS, sent), sent)


def test_asked_to_end_while_it_starts(on_kafka: StartOnKafka) -> None:
    """Asked to end at any moment of its start, it exits 0."""
    processor = on_kafka()
    for _ in range(3):
        eventually(lambda: "processor_started" in processor.log or processor.process.poll() is not None)
        assert processor.stop(timeout=10) == 0, processor.log[-3000:]
        (processor.folder / "log").unlink()
        processor.start()


def test_another_instance_takes_over_from_a_dead_one(on_kafka: StartOnKafka) -> None:
    """Two instances share the partitions; one dies for good, and the other goes on with all, exactly once."""
    first = on_kafka(instance_id="a", session_seconds=6.0)
    sent = send(first, (0, 5))
    first.written(DELIVERY_EVENTS, sent)
    second = on_kafka(instance_id="b", session_seconds=6.0)
    eventually(lambda: "processor_started" in second.log, timeout=20)
    sent += send(first, (5, 10))
    first.written(DELIVERY_EVENTS, sent)
    first.kill()
    sent += send(second, (10, 15))
    check_exactly_once(second.written(DELIVERY_EVENTS, sent), sent)
    assert second.stop() == 0


def test_a_state_that_cannot_be_read_stops_the_processor(on_kafka: StartOnKafka) -> None:
    """That is a fault of ours: the process ends with an error that says so, and writes nothing for the record."""
    processor = on_kafka()
    processor.send(NOTIFICATIONS, [raw(notify("ada", "k1"), "n1")])
    processor.written(DELIVERY_EVENTS, 1)
    assert processor.stop() == 0
    lose_disk(processor)
    inputs = sorted(processor.naming(topic) for topic in PROCESSOR_INPUTS)
    changelog = f"changelog__{processor.naming.prefix}rung-processor--{'--'.join(inputs)}--default"
    spoil(processor.bootstrap, changelog)
    processor.send(NOTIFICATIONS, [raw(notify("ada", "k2"), "n2")])
    processor.start()
    assert processor.process.wait(30) != 0
    assert "cannot be read" in processor.log
    processor._process = None
    assert len(processor.written(DELIVERY_EVENTS, 1)) == 1


def spoil(bootstrap: str, changelog: str) -> None:
    """Write nonsense over every state in a changelog."""
    for record in read_all(bootstrap, changelog):
        headers = {name: value or b"" for name, value in record.headers}
        produce(bootstrap, changelog, [(record.key, b"nonsense", headers)], partition=record.partition)
