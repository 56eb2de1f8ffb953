"""The whole system as processes: from a business service's commit to the provider call, and how much of it a core does.

The provider answers at once: what is measured is the way to it. At the end of each run the audit judges it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
import psycopg

from schemas.topics import DELIVERY_EVENTS, Naming
from tests.benchmarks.bench import Bench, Process
from tests.benchmarks.delivery import configure, count_seen, seen, slow_provider
from tests.benchmarks.harness import Must, Row, percentile
from tests.benchmarks.workload import KIND, profile, recipient_name

PER_SECOND = 200
SECONDS = 60.0
SATURATED = 20_000
RECIPIENTS = 500
SERVICES = ("outbox", "delays", "processor", "deliver", "journal")
SETTLE_SECONDS = 2.0
LADDERS = f"""
[kinds.{KIND}]
stop_on = "sent"
expires_after = "24h"
quiet_hours = "ignore"
steps = [{{ channel = "push", after = "0s", template = "payment" }}]
"""


@dataclass
class Way:
    """What one run took."""

    waits: list[float] = field(default_factory=list)
    """From commit to call, milliseconds."""
    seconds: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)
    """Processor seconds of each service and server."""
    missing: int = 0
    violations: int = 0


@contextlib.contextmanager
def system(bench: Bench) -> Iterator[tuple[Naming, str, int, dict[str, Process]]]:
    """All services and a provider that answers at once: the names, the database, the provider's port, the processes."""
    folder = bench.folder / "config"
    with contextlib.ExitStack() as stack:
        port, provider = stack.enter_context(slow_provider(bench, 0.0))
        configure(folder, port, 64)
        (folder / "templates" / KIND).mkdir(parents=True, exist_ok=True)
        (folder / "ladders.toml").write_text(LADDERS)
        naming = stack.enter_context(bench.topics())
        url = stack.enter_context(bench.database([KIND]))
        processes = {"provider": provider}
        for name in SERVICES:
            processes[name] = stack.enter_context(bench.service(name, naming, url, {"RUNG_CONFIG_DIR": str(folder)}))
        with psycopg.connect(url) as connection:
            for number in range(RECIPIENTS):
                text = json.dumps({"addresses": profile(recipient_name(number)).profile.addresses})
                connection.execute("SELECT rung.put_recipient(%s, %s::jsonb)", (recipient_name(number), text))
        time.sleep(SETTLE_SECONDS)
        yield naming, url, port, processes


def steady(bench: Bench) -> Iterable[Row]:
    """200 notifications a second, each committed by itself."""
    count = round(PER_SECOND * max(5.0, SECONDS * bench.scale))
    runs = [_run(bench, count, PER_SECOND) for _ in range(bench.rounds)]
    part, what = "end to end", f"{PER_SECOND} notifications/s for {count // PER_SECOND} s: commit to provider call"
    raw = {"cpu_share": [{name: round(s / run.seconds, 3) for name, s in run.cpu.items()} for run in runs]}
    for percent, most in ((50, 100.0), (99, 250.0)):
        values = tuple(percentile(run.waits, percent) for run in runs)
        yield Row(part, f"{what}, p{percent}", "ms", values, (), "lower", Must(most=most), raw=raw)
        raw = {}
    yield from _kept(part, runs)


def saturated(bench: Bench) -> Iterable[Row]:
    """As many as go through."""
    count = bench.size(SATURATED, 2_000)
    runs = [_run(bench, count, 0) for _ in range(bench.rounds)]
    part = "end to end"
    shares = [{name: seconds / run.seconds for name, seconds in run.cpu.items()} for run in runs]
    limits = {max((n for n in share if n in SERVICES), key=lambda n: share[n]) for share in shares}
    notes = f"busiest service: {', '.join(sorted(limits))}"
    rate = tuple((count - 1) / run.seconds for run in runs)
    yield Row(part, "saturated", "notifications/s", rate, notes=notes, raw={"cpu_share": shares})
    by_core = tuple(count / sum(run.cpu.values()) for run in runs)
    notes = "services, Kafka, PostgreSQL and provider together"
    yield Row(part, "saturated, per core", "notifications/core-s", by_core, notes=notes)
    services = tuple(count / sum(run.cpu[name] for name in SERVICES) for run in runs)
    yield Row(part, "saturated, per core of the services", "notifications/core-s", services)
    for name in SERVICES:
        yield Row(part, f"{name}: CPU", "µs/notification", tuple(r.cpu[name] / count * 1e6 for r in runs), (), "lower")
    yield from _kept(part, runs)


def _kept(part: str, runs: list[Way]) -> Iterable[Row]:
    yield Row(part, "not called", "notifications", tuple(float(r.missing) for r in runs), (), "lower", Must(most=0))
    found = tuple(float(run.violations) for run in runs)
    yield Row(part, "violations the audit found", "", found, (), "lower", Must(most=0))


def _run(bench: Bench, count: int, per_second: int) -> Way:
    with system(bench) as (naming, url, port, processes):
        times = bench.folder / "notified"
        settings = {"database_url": url, "count": count, "per_second": per_second, "recipients": RECIPIENTS}
        servers = _servers(bench)
        before = {name: p.cpu_seconds for name, p in processes.items()} | {n: _cpu(p) for n, p in servers.items()}
        with bench.module("tests.benchmarks.notifier", settings | {"times": str(times)}) as notifier:
            report = _called(port, count, processes)
            notifier.wait(60)
        after = {name: p.cpu_seconds for name, p in processes.items()} | {n: _cpu(p) for n, p in servers.items()}
        way = _way(report, json.loads(times.read_text()))
        way.cpu = {name: after[name] - before[name] for name in after}
        _quiet(bench, naming)
        way.violations = sum(bench.audit(naming, url)["violations"].values())
        return way


def _called(port: int, count: int, processes: dict[str, Process]) -> dict[str, Any]:
    deadline = time.monotonic() + 900
    while count_seen(port) < count:
        for process in processes.values():
            process.check()
        if time.monotonic() > deadline:
            break
        time.sleep(0.5)
    return seen(port)


def _way(report: dict[str, Any], committed: dict[str, float]) -> Way:
    called: dict[str, float] = {}
    for key, at in zip(report["keys"], report["times"], strict=True):
        called.setdefault(key, at)
    waits = [(called[key] - at) * 1000 for key, at in committed.items() if key in called]
    return Way(waits, report["last"] - report["first"], missing=len(committed) - len(waits))


def _quiet(bench: Bench, naming: Naming) -> None:
    """Wait until nothing more is written: outcomes are on their way still."""
    end, since = -1, time.monotonic()
    while time.monotonic() - since < SETTLE_SECONDS:
        now = bench.ends([naming(DELIVERY_EVENTS)])
        if now != end:
            end, since = now, time.monotonic()
        time.sleep(0.2)


def _servers(bench: Bench) -> dict[str, list[psutil.Process]]:
    """Kafka's process, and PostgreSQL's with its backends."""
    found: dict[str, list[psutil.Process]] = {"kafka": [], "postgres": []}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            name = process.name()
            if name.startswith("java"):
                found["kafka"].append(process)
            elif name.startswith("postgres"):
                found["postgres"].append(process)
    return found


def _cpu(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total
