"""What an event costs when there is twice as much of something: recipients, notifications, kinds, partitions.

The measure is the processor's own processor time for an event, which other work on the machine disturbs least.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.benchmarks.bench import PARTITIONS, Bench
from tests.benchmarks.harness import Must, Row, take_turns
from tests.benchmarks.processor import Contest, Drain, costs
from tests.benchmarks.workload import mixed

EVENTS = 40_000
KINDS = 50


def growth(bench: Bench) -> Iterable[Row]:
    """Twice as much of each, beside once."""
    events = bench.size(EVENTS, 2_000)
    once = mixed(events, PARTITIONS)
    contest = Contest(bench, once)
    doubled = {
        "recipients with an open notification": Contest(bench, mixed(events, PARTITIONS, bystanders=events)),
        "open notifications of each recipient": Contest(bench, mixed(events, PARTITIONS, held=2)),
        "partitions": Contest(bench, mixed(events, 2 * PARTITIONS), 2 * PARTITIONS),
    }
    runs: dict[str, Any] = {what: lambda c=c: c.drain("rung", kinds=KINDS) for what, c in doubled.items()}
    runs["kinds"] = lambda: contest.drain("rung", kinds=2 * KINDS)
    found: list[list[Drain]] = take_turns(
        bench.rounds, lambda: contest.drain("rung", kinds=KINDS), *runs.values(), warm_up=False
    )
    for what, twice in zip(runs, found[1:], strict=True):
        notes, raw = "CPU of an event; baseline: once as many", {"once": found[0], "twice": twice}
        yield Row(
            "growth",
            f"twice the {what}",
            "µs/event",
            costs(twice),
            costs(found[0]),
            "lower",
            Must(most=1.1),
            notes,
            raw,
        )
