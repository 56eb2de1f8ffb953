"""The processor against bare quixstreams: events per second from a backlog, with the state already there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from processor.engine.changelog import ensure_changelog
from processor.engine.config import PROCESSOR_GROUP, ProcessorConfig, changelog_name
from schemas.partitioner import partition_of
from schemas.topics import NOTIFICATIONS, PROCESSOR_INPUTS, Naming
from tests.benchmarks.bench import PARTITIONS, Bench, Process
from tests.benchmarks.engines import MODULE
from tests.benchmarks.harness import Must, Row, take_turns
from tests.benchmarks.workload import Workload, mixed
from tests.support.kafka import PRODUCER_SETTINGS

EVENTS = 30_000
CHANGELOG_HEADERS = [("__column_family__", b"default"), ("__processed_tp_offsets__", b"{}")]
WARM_SHARE = 0.1
"""The part of a backlog that is worked off before the measurement begins: caches, memory and the client's buffers are
not yet what they will be."""
_SECONDS = 600.0


@dataclass(frozen=True)
class Drain:
    """One engine's run over one backlog."""

    events: int
    seconds: float
    cpu_seconds: float
    rss_bytes: int
    restore_seconds: float
    """From the process's start to its first commit: its imports, its group, the state read back, one commit."""

    @property
    def per_second(self) -> float:
        """Events per second, from the first commit that was seen after `WARM_SHARE` to the last."""
        return self.events / self.seconds


def writer(kafka: str, compression: str = "none") -> Producer:
    """A producer for backlogs."""
    room = {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000, "compression.type": compression}
    settings = PRODUCER_SETTINGS | room
    return Producer({"bootstrap.servers": kafka, **settings})


def fill_state(kafka: str, naming: Naming, states: Iterable[tuple[bytes, bytes]], partitions: int) -> None:
    """Put states where a processor of this prefix reads them back from."""
    inputs = [naming(topic) for topic in PROCESSOR_INPUTS]
    config = ProcessorConfig(kafka={"bootstrap.servers": kafka}, naming=naming, ladders={}, state_dir=Path("unused"))
    ensure_changelog(config, inputs)
    producer = writer(kafka, compression="lz4")
    name = changelog_name(config.group, inputs)
    for key, state in states:
        while True:
            try:
                place = partition_of(key, partitions)
                producer.produce(name, key=key + b"|state", value=state, partition=place, headers=CHANGELOG_HEADERS)
                break
            except BufferError:
                producer.poll(0.1)
    flush(producer)


def fill_inputs(kafka: str, naming: Naming, workload: Workload) -> None:
    """Put the inputs of a run into their topics."""
    producer = writer(kafka)
    for one in workload.inputs:
        producer.produce(
            naming(one.topic), key=one.key, value=one.value, partition=one.partition, headers=list(one.headers)
        )
    flush(producer)


def flush(producer: Producer) -> None:
    """Wait until all is acknowledged."""
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")


def script_of(workload: Workload, naming: Naming, partitions: int) -> bytes:
    """What `engines.same` writes."""
    found: dict[str, list[list[Any]]] = {naming(t): [[] for _ in range(partitions)] for t in PROCESSOR_INPUTS}
    for one in workload.inputs:
        outputs = [(o.topic.name, o.key, o.value, o.headers) for o in one.outputs]
        found[naming(one.topic)][one.partition].append((one.state, outputs))
    return msgspec.msgpack.encode(found)


class Progress:
    """What a consumer group has committed."""

    def __init__(self, kafka: str, group: str, topics: Iterable[str], partitions: int) -> None:
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": group})
        self._seen = 0
        self._places = [TopicPartition(topic, p) for topic in topics for p in range(partitions)]

    def total(self) -> int:
        """Of all partitions together; what was seen last while the group has no coordinator, as it is at its start."""
        with contextlib.suppress(KafkaException):
            self._seen = sum(max(0, tp.offset) for tp in self._consumer.committed(self._places, timeout=30))
        return self._seen

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()


def watch(progress: Progress, process: Process, events: int, started: float) -> Drain:
    """Wait until all inputs are committed."""
    begun: float | None = None
    first: tuple[float, int, float] | None = None
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        process.check()
        done, now = progress.total(), time.monotonic()
        if done and begun is None:
            begun = now
        if done > events * WARM_SHARE and first is None:
            first = (now, done, process.cpu_seconds)
        if done >= events:
            assert begun is not None
            assert first is not None
            cpu = process.cpu_seconds - first[2]
            took = max(now - first[0], 1e-9)
            return Drain(done - first[1], took, cpu, process.rss_bytes, begun - started)
        time.sleep(0.03)
    raise RuntimeError(f"{progress.total()} of {events} inputs were processed in {_SECONDS} s")


class Contest:
    """Runs the engines over one workload."""

    def __init__(self, bench: Bench, workload: Workload, partitions: int = PARTITIONS) -> None:
        self._bench = bench
        self._workload = workload
        self._partitions = partitions

    def drain(self, mode: str, **options: Any) -> Drain:
        """Let an engine work off the backlog, with the state of the workload there to be read back."""
        with self._bench.topics(self._partitions) as naming:
            fill_state(self._bench.kafka, naming, self._workload.states.items(), self._partitions)
            fill_inputs(self._bench.kafka, naming, self._workload)
            script = self._bench.folder / f"{naming.prefix}script"
            if mode == "same":
                script.write_bytes(script_of(self._workload, naming, self._partitions))
            return self._timed(mode, naming, PROCESSOR_INPUTS, script=str(script), **options)

    def count(self) -> Drain:
        """Let quixstreams count as many inputs of about the same size, all in one topic."""
        with self._bench.topics(self._partitions) as naming:
            producer = writer(self._bench.kafka)
            for one in self._workload.inputs:
                producer.produce(naming(NOTIFICATIONS), key=one.key, value=one.value, headers=list(one.headers))
            flush(producer)
            return self._timed("counter", naming, [NOTIFICATIONS])

    def _timed(self, mode: str, naming: Naming, topics: Iterable[Any], **options: Any) -> Drain:
        arguments = {
            "mode": mode,
            "kafka": self._bench.kafka,
            "prefix": naming.prefix,
            "state_dir": str(self._bench.folder / "state" / naming.prefix),
            **options,
        }
        names = [naming(topic) for topic in topics]
        progress = Progress(self._bench.kafka, naming.prefix + PROCESSOR_GROUP, names, self._partitions)
        started = time.monotonic()
        try:
            with self._bench.module(MODULE, arguments) as process:
                return watch(progress, process, len(self._workload.inputs), started)
        finally:
            progress.close()


def rates(runs: Iterable[Drain]) -> tuple[float, ...]:
    """Events per second of each run."""
    return tuple(run.per_second for run in runs)


def costs(runs: Iterable[Drain]) -> tuple[float, ...]:
    """Processor time of each run, microseconds an event."""
    return tuple(run.cpu_seconds / run.events * 1e6 for run in runs)


def processor(bench: Bench) -> Iterable[Row]:
    """The processor's rows."""
    events = bench.size(EVENTS, 2_000)
    contest = Contest(bench, mixed(events, PARTITIONS))
    bare, ours, faust, counted = take_turns(
        bench.rounds,
        lambda: contest.drain("same"),
        lambda: contest.drain("rung"),
        lambda: contest.drain("faust"),
        contest.count,
        warm_up=False,
    )
    raw = {"rung": ours, "faust": faust, "same": bare, "counter": counted}
    yield Row(
        "processor",
        "a mixed backlog, state there",
        "events/s",
        rates(ours),
        rates(bare),
        must=Must(least=0.7),
        notes="baseline: quixstreams with the same settings reads the state and writes the same bytes, no decision",
        raw=raw,
    )
    yield Row(
        "processor",
        "the same, against a counter",
        "events/s",
        rates(ours),
        rates(counted),
        notes="baseline: quixstreams with one counter and one output, one input topic",
    )
    yield Row(
        "processor", "CPU", "µs/event", costs(ours), costs(bare), better="lower", notes="baseline: the same bytes"
    )
    notes = "baseline: the engine quix, the same processor"
    yield Row("processor", "the same backlog on Faust", "events/s", rates(faust), rates(ours), notes=notes)
    yield Row("processor", "CPU on Faust", "µs/event", costs(faust), costs(ours), better="lower", notes=notes)
