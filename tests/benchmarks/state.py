"""The state of open notifications: bytes on disk and in the changelog, the time to read it back, resident memory."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from processor.engine.config import PROCESSOR_GROUP
from schemas import records as r
from schemas.codec import encode, encode_key
from schemas.envelope import Envelope, to_headers
from schemas.topics import PROCESSOR_INPUTS, RESOLUTIONS, Naming
from tests.benchmarks.bench import PARTITIONS, Bench, Process
from tests.benchmarks.engines import MODULE
from tests.benchmarks.harness import Must, Row, take_turns
from tests.benchmarks.processor import Progress, fill_state, flush, writer
from tests.benchmarks.workload import Player, opened, recipient_name

OPEN = 100_000
MANY = 1_000_000
PROBES = 2_000
_TEMPLATE = recipient_name(0)


@dataclass(frozen=True)
class Found:
    """One start of a processor on a state that it had to read back."""

    seconds: float
    """From the process's start to the commit of its first input."""
    disk_bytes: int
    changelog_bytes: int
    rss_bytes: int
    cpu_seconds: float


def state(bench: Bench) -> Iterable[Row]:
    """Starts with an empty disk on nothing, on 100,000 and on a million open notifications, one of each recipient."""
    few, many = bench.size(OPEN, 2_000), bench.size(MANY, 20_000)
    none, some, all_of, faust_none, faust_some = take_turns(
        bench.rounds,
        lambda: _start(bench, 0),
        lambda: _start(bench, few),
        lambda: _start(bench, many),
        lambda: _start(bench, 0, "faust"),
        lambda: _start(bench, few, "faust"),
        warm_up=False,
    )
    raw = {"none": none, "few": some, "many": all_of, "faust none": faust_none, "faust few": faust_some}
    part = "state"
    stored = sum(len(value) for _, value in states(100)) / 100
    notes = f"the stored value: {stored:.0f} bytes, of a recipient with one of three steps"
    disk = tuple(run.disk_bytes / few for run in some)
    yield Row(part, "on disk", "bytes/open", disk, (), "lower", notes=notes, raw=raw)
    yield Row(part, "in the changelog", "bytes/open", tuple(run.changelog_bytes / few for run in some), (), "lower")
    for runs, bare, count, where in (
        (some, none, few, ""),
        (all_of, none, many, ""),
        (faust_some, faust_none, few, ", on Faust"),
    ):
        took = tuple((run.seconds - empty.seconds) / count * 100_000 for run, empty in zip(runs, bare, strict=True))
        what = f"restore of {count:,} open, disk lost{where}"
        notes = "beyond a start without state"
        yield Row(part, what, "s per 100,000", took, (), "lower", Must(most=5), notes)
    rss = tuple(run.rss_bytes / 2**20 for run in all_of), tuple(run.rss_bytes / 2**20 for run in some)
    notes = f"baseline: {few:,} open"
    yield Row(part, f"resident memory at {many:,} open", "MiB", *rss, "lower", Must(most=1.25), notes)


def states(count: int) -> Iterator[tuple[bytes, bytes]]:
    """As many recipients, each with one open notification; made of one that the processor's code has written."""
    player = Player(PARTITIONS)
    opened(player, _TEMPLATE)
    template = player.store.states[_TEMPLATE.encode()]
    identity = template.split(b'"notification_id":"', 1)[1][:36]
    for number in range(count):
        name = recipient_name(number).encode()
        yield name, template.replace(_TEMPLATE.encode(), name).replace(identity, str(uuid.uuid4()).encode())


def _start(bench: Bench, count: int, mode: str = "rung") -> Found:
    with bench.topics() as naming:
        fill_state(bench.kafka, naming, states(count), PARTITIONS)
        _probe(bench, naming)
        inputs = [naming(topic) for topic in PROCESSOR_INPUTS]
        progress = Progress(bench.kafka, naming.prefix + PROCESSOR_GROUP, inputs, PARTITIONS)
        folder = bench.folder / "state" / naming.prefix
        settings = {"mode": mode, "kafka": bench.kafka, "prefix": naming.prefix, "state_dir": str(folder)}
        started = time.monotonic()
        try:
            with bench.module(MODULE, settings) as process:
                seconds = _first(progress, process) - started
                _all(progress, process)
                rss, cpu = process.rss_bytes, process.cpu_seconds
        finally:
            progress.close()
        servers = bench.folder / "servers"
        changelog = sum(p.stat().st_size for p in servers.rglob(f"changelog__{naming.prefix}*/*.log"))
        return Found(seconds, _size(folder), changelog, rss, cpu)


def _probe(bench: Bench, naming: Naming) -> None:
    """A few inputs, which are committed once the state is there."""
    producer = writer(bench.kafka)
    for number in range(PROBES):
        resolve = r.Resolve(recipient=recipient_name(number), dedup_key="invoice-0", resolution="paid")
        headers = to_headers(Envelope(f"probe-{number}", r.Resolve.TYPE, "/rung/outbox", 0))
        producer.produce(
            naming(RESOLUTIONS), key=encode_key(resolve.recipient), value=encode(resolve), headers=list(headers)
        )
    flush(producer)


def _first(progress: Progress, process: Process) -> float:
    while not progress.total():
        process.check()
        time.sleep(0.05)
    return time.monotonic()


def _all(progress: Progress, process: Process) -> None:
    while progress.total() < PROBES:
        process.check()
        time.sleep(0.05)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
