"""Every part of the benchmark by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.benchmarks import (
    debezium,
    delays,
    delivery,
    failover,
    growth,
    journal,
    outbox,
    processor,
    producer,
    state,
    whole,
)
from tests.benchmarks.bench import Bench
from tests.benchmarks.harness import Row

PARTS: dict[str, Callable[[Bench], Iterable[Row]]] = {
    "outbox-drain": outbox.drain,
    "outbox-steady": outbox.steady,
    "producer": producer.cost,
    "journal": journal.drain,
    "processor": processor.processor,
    "delays": delays.forwarding,
    "delays-lateness": delays.lateness,
    "delivery": delivery.delivery,
    "whole-steady": whole.steady,
    "whole-saturated": whole.saturated,
    "state": state.state,
    "failover": failover.failover,
    "growth": growth.growth,
}
OPTIONAL: dict[str, Callable[[Bench], Iterable[Row]]] = {"debezium": debezium.compare}
"""Parts that run only if they are named: they download what nothing else needs."""
