"""One run of the suite: the system, whatever the tests do to it, and in the end the judgement and the table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.chaos.ledger import Verdict
from tests.support.chaos.report import rows, show, summarised
from tests.support.chaos.system import System

GROWTH = 1.25
GROWTH_BYTES = 64 * 2**20
FILLS = {"processor": 96 * 2**20}
"""A process's memory is flat if it stays below its first size by these, and by what it is told to fill: of a processor
the cache of its store, and the write buffers of all partitions, since it may be the only one for a while."""


@contextmanager
def judged(folder: Path, report: Path, *, per_second: float, seed: int, engine: str, memory: bool) -> Iterator[System]:
    """A system under load; at the end of the block it is drained, judged and stopped, and the table is printed.

    Raises:
        AssertionError: something was lost, sent after its stop, sent twice without a reason; the audit found something;
            `memory` was asked for, and a process grew.
    """
    with System(folder, per_second=per_second, seed=seed, engine=engine) as system:
        yield system
        problems: list[str] = []
        try:
            system.drain()
        except AssertionError as error:
            problems.append(str(error))
        verdict = system.verdict()
        sizes = summarised({name: found.samples for name, found in system.fleet.memory.items()})
        notes = _notes(system, verdict)
        problems += verdict.faults
        problems += _audit(system, notes)
        if memory:
            problems += [
                f"the memory of {name} grew from {first / 2**20:.0f} to {last / 2**20:.0f} MiB"
                for name, (first, _, last) in sizes.items()
                if last > first * GROWTH + GROWTH_BYTES + FILLS.get(name.partition("-")[0], 0)
            ]
        show(rows(system.faults, verdict), sizes, notes, report)
    assert not problems, "\n".join(problems[:50])


def _notes(system: System, verdict: Verdict) -> list[str]:
    deaths = system.fleet.deaths
    gave_up = [f"{death.name} ({death.code})" for death in deaths if death.code >= 0]
    notes = [
        f"{verdict.asks} notifications, {verdict.calls} provider calls, {len(system.faults)} faults, "
        f"{sum(death.code < 0 for death in deaths)} processes killed",
        f"lost: {len(verdict.of('lost'))}; after the stop: {len(verdict.of('after_stop'))}; in flight as the stop was "
        f"recorded: {len(verdict.of('in_flight'))}; between the commit of a stop and its record: "
        f"{len(verdict.of('before_record'))}",
        f"duplicates at a provider after a worker died between call and outcome, each with the key of the first: "
        f"{len(verdict.of('duplicate'))}; any other: {len(verdict.of('unexplained_duplicate'))}",
    ]
    if gave_up:
        notes.append(f"gave up and were started again: {', '.join(gave_up)}")
    return notes


def _audit(system: System, notes: list[str]) -> list[str]:
    """What `rung audit` finds; it reads the tables and topics, past the proxies."""
    command = [sys.executable, "-m", "deploy.cli", "audit"]
    environment = {
        **system.environment(),
        "RUNG_KAFKA": system.kafka.bootstrap_servers,
        "RUNG_DATABASE_URL": system.database_url,
    }
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    notes.append(f"audit: exit code {run.returncode}")
    return [] if run.returncode == 0 else [f"audit: {run.stdout[-3000:]}{run.stderr[-1000:]}"]
