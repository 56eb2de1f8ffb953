"""The delayer: how fast it forwards what is due, beside bare consume-produce, and how late a steady stream comes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager

from confluent_kafka import Consumer, TopicPartition

from schemas import records as r
from schemas.codec import encode, encode_key
from schemas.envelope import DUE_AT_HEADER, Envelope, to_headers
from schemas.topics import DELAYS, DUE, TIERS, Naming, tier_for
from tests.benchmarks.bench import PARTITIONS, Bench, Process
from tests.benchmarks.harness import Must, Row, percentile, take_turns
from tests.benchmarks.processor import Drain, Progress, costs, flush, rates, watch, writer
from tests.benchmarks.workload import recipient_name

RECORDS = 200_000
PER_SECOND = 1_000
SECONDS = 30.0
LEAD_SECONDS = 8.0
"""Before the first moment of the stream: the delayer has started by then."""
_TIERS_USED = TIERS[:4]


def forwarding(bench: Bench) -> Iterable[Row]:
    """A backlog of records whose time has come."""
    count = bench.size(RECORDS, 4_000)
    bare, ours = take_turns(
        bench.rounds, lambda: _drain(bench, count, ours=False), lambda: _drain(bench, count, ours=True), warm_up=False
    )
    part, what = "delayer", f"forward of {count:,} due records"
    notes = "baseline: transactional consume-produce of the same records, same settings and size of transactions"
    raw = {"ours": ours, "bare": bare}
    yield Row(part, what, "records/s", rates(ours), rates(bare), must=Must(0.5), notes=notes, raw=raw)
    yield Row(part, "CPU", "µs/record", costs(ours), costs(bare), "lower")


def lateness(bench: Bench) -> Iterable[Row]:
    """A steady stream of moments: when a reader of `due` has each of them, against its moment."""
    seconds = max(3.0, SECONDS * bench.scale)
    runs = [_late(bench, seconds) for _ in range(bench.rounds)]
    part, what = "delayer", f"{PER_SECOND:,} due/s for {seconds:.0f} s: lateness"
    for percent, must in ((50, None), (99, Must(most=250))):
        values = tuple(percentile(run, percent) for run in runs)
        yield Row(part, f"{what}, p{percent}", "ms", values, (), "lower", must)
    early = tuple(float(sum(late < 0 for late in run)) for run in runs)
    yield Row(part, "records before their moment", "records", early, (), "lower", Must(most=0))


def _delayer(bench: Bench, naming: Naming, *, ours: bool) -> AbstractContextManager[Process]:
    if ours:
        return bench.service("delays", naming, ready=False)
    return bench.module("tests.benchmarks.delays_bare", {"kafka": bench.kafka, "prefix": naming.prefix})


def _drain(bench: Bench, count: int, *, ours: bool) -> Drain:
    with bench.topics() as naming:
        past = time.time_ns() // 1_000_000 - 600_000
        _fill(bench, naming, [past + number // 100 for number in range(count)], spread=True)
        progress = Progress(bench.kafka, naming.prefix + "rung-delays", map(naming, DELAYS), PARTITIONS)
        started = time.monotonic()
        try:
            with _delayer(bench, naming, ours=ours) as process:
                return watch(progress, process, count, started)
        finally:
            progress.close()


def _fill(bench: Bench, naming: Naming, moments: list[int], *, spread: bool) -> None:
    """A record for each moment: over four tiers in turn, or each in the tier that the processor would choose."""
    producer, now = writer(bench.kafka), time.time_ns() // 1_000_000
    for number, moment in enumerate(moments):
        tier = _TIERS_USED[number % len(_TIERS_USED)] if spread else tier_for(moment - now)
        due = r.Due(recipient=recipient_name(number), due_at=moment)
        headers = to_headers(Envelope(f"due-{number}", r.Due.TYPE, "/rung/processor", now))
        headers.append((DUE_AT_HEADER, str(moment).encode()))
        producer.produce(naming(tier), key=encode_key(due.recipient), value=encode(due), headers=list(headers))
        if number % 1_000 == 0:
            producer.poll(0)
    flush(producer)


def _late(bench: Bench, seconds: float) -> list[float]:
    """By how many milliseconds each record of the stream came after its moment, as a reader of `due` sees it."""
    count = round(PER_SECOND * seconds)
    with bench.topics() as naming, _delayer(bench, naming, ours=True) as process:
        begin = time.time_ns() // 1_000_000 + round(LEAD_SECONDS * 1000)
        _fill(bench, naming, [begin + number * 1000 // PER_SECOND for number in range(count)], spread=False)
        consumer = Consumer(
            {
                "bootstrap.servers": bench.kafka,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign([TopicPartition(naming(DUE), partition, 0) for partition in range(PARTITIONS)])
        found: list[float] = []
        deadline = time.monotonic() + LEAD_SECONDS + seconds + 60
        while len(found) < count and time.monotonic() < deadline:
            process.check()
            messages = consumer.consume(1_000, 0.01)
            now = time.time() * 1000
            found += [now - int(dict(m.headers() or ())[DUE_AT_HEADER]) for m in messages if m.error() is None]
        consumer.close()
        if len(found) < count:
            raise RuntimeError(f"{len(found)} of {count} records came")
        return found
