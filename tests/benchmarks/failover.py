"""How long nothing comes out when the processor is killed and started again, beside bare quixstreams."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from schemas.topics import DELIVERY_EVENTS, Naming
from tests.benchmarks.bench import PARTITIONS, Bench
from tests.benchmarks.engines import MODULE
from tests.benchmarks.harness import Must, Row, take_turns
from tests.benchmarks.processor import fill_state, script_of, writer
from tests.benchmarks.workload import Workload, Written, mixed
from tests.support.eventually import eventually

PER_SECOND = 200
BEFORE_SECONDS = 6.0
AFTER_SECONDS = 14.0
START_SECONDS = 90.0
LATE_SECONDS = 0.5
"""What a reader finds so long after the kill is no output of the killed process."""


def failover(bench: Bench) -> Iterable[Row]:
    """The longest gap in the outputs around a kill -9 and an immediate restart."""
    workload = mixed(round(PER_SECOND * (BEFORE_SECONDS + AFTER_SECONDS)), PARTITIONS)
    bare, ours, faust = take_turns(
        bench.rounds,
        lambda: _gap(bench, workload, "same"),
        lambda: _gap(bench, workload, "rung"),
        lambda: _gap(bench, workload, "faust"),
        warm_up=False,
    )
    part, what = "failover", "kill -9 and restart: longest gap in the outputs"
    notes = "baseline: quixstreams with the same settings, killed and restarted the same way"
    yield Row(part, what, "s", tuple(ours), tuple(bare), "lower", Must(most=1.5), notes)
    yield Row(part, "the same, by itself", "s", tuple(ours), (), "lower", Must(most=5))
    notes = "baseline: the engine quix, killed and restarted the same way"
    yield Row(part, "the same on Faust", "s", tuple(faust), tuple(ours), "lower", notes=notes)


def _gap(bench: Bench, workload: Workload, mode: str) -> float:
    with bench.topics() as naming:
        fill_state(bench.kafka, naming, workload.states.items(), PARTITIONS)
        script = bench.folder / f"{naming.prefix}script"
        script.write_bytes(script_of(workload, naming, PARTITIONS))
        settings = {
            "mode": mode,
            "kafka": bench.kafka,
            "prefix": naming.prefix,
            "state_dir": str(bench.folder / "state" / naming.prefix),
            "script": str(script),
        }
        with _arrivals(bench, naming) as arrivals:
            with bench.module(MODULE, settings) as process:
                feeder = threading.Thread(target=_feed, args=(bench, naming, workload.inputs))
                feeder.start()
                _wait(lambda: arrivals, "something comes out")
                time.sleep(BEFORE_SECONDS)
                process.child.kill()
                killed = time.monotonic()
            with bench.module(MODULE, settings) as process:
                _wait(lambda: arrivals[-1] > killed + LATE_SECONDS, "something comes out after the restart")
                process.check()
                feeder.join()
        return max(b - a for a, b in pairwise(at for at in list(arrivals) if at > killed - 1.0))


def _wait(condition: Callable[[], object], what: str) -> None:
    eventually(condition, START_SECONDS, 0.05, describe=what)


def _feed(bench: Bench, naming: Naming, inputs: list[Written]) -> None:
    producer, begin = writer(bench.kafka), time.monotonic()
    for number, one in enumerate(inputs):
        while (wait := begin + number / PER_SECOND - time.monotonic()) > 0:
            producer.poll(min(wait, 0.01))
        producer.produce(
            naming(one.topic), key=one.key, value=one.value, partition=one.partition, headers=list(one.headers)
        )
    producer.flush(30)


@contextmanager
def _arrivals(bench: Bench, naming: Naming) -> Iterator[list[float]]:
    """When each delivery event came to a reader of committed records, while the block lasts."""
    found: list[float] = []
    stop = threading.Event()

    def read() -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bench.kafka,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(naming(DELIVERY_EVENTS), number, 0) for number in range(PARTITIONS)])
        while not stop.is_set():
            count = sum(message.error() is None for message in consumer.consume(500, 0.05))
            found.extend([time.monotonic()] * count)
        consumer.close()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield found
    finally:
        stop.set()
        reader.join()
