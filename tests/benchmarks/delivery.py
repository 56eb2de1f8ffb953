"""The delivery worker against a provider that takes 50 ms: calls per second, beside what its slots could make."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from deploy.local.ports import free_port
from schemas import records as r
from schemas.codec import encode, encode_key
from schemas.envelope import Envelope, to_headers
from schemas.topics import DELIVERIES, Naming
from tests.benchmarks.bench import Bench
from tests.benchmarks.harness import Must, Row, take_turns
from tests.benchmarks.processor import flush, writer
from tests.benchmarks.workload import KIND, recipient_name
from tests.support.eventually import eventually

SLOTS = 128
DELAY_SECONDS = 0.05
CALLS = 30_000
PER_LANE = 10
LIVES_MS = 3_600_000
CHANNELS = """
[channels.push]
providers = [{{ adapter = "webhook", url = "http://127.0.0.1:{port}/push", unknown = "resend", concurrency = {slots} }}]
"""


@dataclass(frozen=True)
class Calls:
    """What the provider saw of a worker, and what the worker took."""

    per_second: float
    most: int
    misplaced: int
    """Calls that came before an earlier one of their lane."""
    cpu_us: float
    provider_cpu: float
    """Of the provider, its share of a core."""


def delivery(bench: Bench) -> Iterable[Row]:
    """The worker's rows."""
    count = bench.size(CALLS, 2_000)
    raw, library, runs = take_turns(
        bench.rounds,
        lambda: _client(bench, "raw"),
        lambda: _client(bench, "aiohttp"),
        lambda: _worker(bench, count),
        warm_up=False,
    )
    part, possible = "delivery worker", SLOTS / DELAY_SECONDS
    ours = tuple(run.per_second for run in runs)
    what = f"{SLOTS} slots, provider takes {DELAY_SECONDS * 1000:.0f} ms"
    notes = f"baseline: slots ÷ delay; the provider itself: {max(raw):.0f}/s"
    by_slots = (possible,) * len(ours)
    yield Row(part, what, "calls/s", ours, by_slots, must=Must(0.8), notes=notes, raw={"runs": runs})
    yield Row(part, "the provider itself", "calls/s", tuple(raw), by_slots, notes="ready requests on bare sockets")
    yield Row(part, "against its client library", "calls/s", ours, tuple(library), notes="baseline: a loop of aiohttp")
    yield Row(part, "CPU", "µs/call", tuple(run.cpu_us for run in runs), (), "lower")
    misplaced = tuple(float(run.misplaced) for run in runs)
    yield Row(part, "calls out of their lane's order", "calls", misplaced, (), "lower", Must(most=0))
    most = tuple(float(run.most) for run in runs)
    yield Row(part, "most calls at once", "calls", most, (), "lower", Must(most=SLOTS))


@contextmanager
def slow_provider(bench: Bench, delay: float = DELAY_SECONDS) -> Iterator[tuple[int, Any]]:
    """A running provider: its port and its process."""
    port = free_port()
    with bench.module("tests.benchmarks.slow_provider", {"port": port, "delay": delay}) as process:
        eventually(lambda: _answers(port), 20.0, 0.05, describe="the provider listens")
        yield port, process


def seen(port: int) -> dict[str, Any]:
    """All that a provider has seen so far. It stands still while it writes this."""
    return _get(port, "")


def count_seen(port: int) -> int:
    """How many calls a provider has seen so far."""
    return int(_get(port, "count")["count"])


def _get(port: int, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def _answers(port: int) -> bool:
    try:
        return count_seen(port) >= 0
    except OSError:
        return False


def _client(bench: Bench, kind: str) -> float:
    with slow_provider(bench) as (port, _):
        settings = {"kind": kind, "port": port, "slots": SLOTS, "seconds": 5.0}
        with bench.module("tests.benchmarks.slow_client", settings) as process:
            process.wait(60)
        return float(process.log.read_text().split()[-1])


def configure(folder: Path, port: int, slots: int = SLOTS) -> None:
    """What the worker reads."""
    (folder / "templates" / KIND).mkdir(parents=True, exist_ok=True)
    (folder / "templates" / "payment").mkdir(parents=True, exist_ok=True)
    (folder / "templates" / "payment" / "push.j2").write_text("{{ amount }} is due: {{ text }}\n")
    (folder / "channels.toml").write_text(CHANNELS.format(port=port, slots=slots))


def claim(number: int, now: int) -> r.Delivery:
    """The n-th claim of the benchmark; each lane has several, in order."""
    identity = UUID(int=number)
    recipient = recipient_name(number // PER_LANE)
    return r.Delivery(
        notification_id=identity,
        recipient=recipient,
        kind=KIND,
        dedup_key=f"invoice-{number}",
        step_no=0,
        channel="push",
        address=f"token-{recipient}",
        template="payment",
        data={"amount": "12.50 EUR", "text": "x" * 60},
        attempt=1,
        claim=1,
        key=f"{identity}:0",
        claimed_at=now,
        claim_deadline=now + LIVES_MS,
        due_at=now,
        expires_at=now + LIVES_MS,
    )


def _fill(bench: Bench, naming: Naming, count: int) -> None:
    producer, now = writer(bench.kafka), time.time_ns() // 1_000_000
    # Lanes take turns, as recipients do: a lane's claims do not follow each other at once.
    lanes = -(-count // PER_LANE)
    for number in (lane * PER_LANE + place for place in range(PER_LANE) for lane in range(lanes)):
        record = claim(number, now)
        headers = to_headers(Envelope(f"claim-{number}", r.Delivery.TYPE, "/rung/processor", now))
        producer.produce(
            naming(DELIVERIES), key=encode_key(record.recipient), value=encode(record), headers=list(headers)
        )
    flush(producer)


def _worker(bench: Bench, count: int) -> Calls:
    folder = bench.folder / "delivery"
    with slow_provider(bench) as (port, provider), bench.topics() as naming:
        configure(folder, port)
        _fill(bench, naming, count)
        settings = {"kafka": bench.kafka, "prefix": naming.prefix, "folder": str(folder), "slots": SLOTS}
        with bench.module("tests.benchmarks.worker_process", settings) as worker:
            first: tuple[float, float] | None = None
            deadline = time.monotonic() + 600
            while (made := count_seen(port)) < count:
                worker.check()
                if made and first is None:
                    first = worker.cpu_seconds, provider.cpu_seconds
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{made} of {count} calls were made")
                time.sleep(0.2)
            assert first is not None
            cpu = worker.cpu_seconds - first[0], provider.cpu_seconds - first[1]
            report = seen(port)
            took = report["last"] - report["first"]
            return Calls(
                (count - 1) / took,
                report["most"],
                _misplaced(report["keys"]),
                cpu[0] / count * 1e6,
                cpu[1] / took,
            )


def _misplaced(keys: list[str]) -> int:
    latest: dict[int, int] = {}
    wrong = 0
    for key in keys:
        number = UUID(key.partition(":")[0]).int
        lane = number // PER_LANE
        wrong += number < latest.get(lane, -1)
        latest[lane] = max(number, latest.get(lane, -1))
    return wrong
