"""Every part of the benchmark by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.benchmarks import journal, outbox, producer
from tests.benchmarks.bench import Bench
from tests.benchmarks.harness import Row

PARTS: dict[str, Callable[[Bench], Iterable[Row]]] = {
    "outbox-drain": outbox.drain,
    "outbox-steady": outbox.steady,
    "producer": producer.cost,
    "journal": journal.drain,
}
