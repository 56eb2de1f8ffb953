"""The crash suite in its short form: every crash point once, and the faults that a system gets over soon.

All of it happens to one running system under a steady load; what the providers received is judged at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chaos import faults
from tests.support.chaos.run import judged
from tests.support.chaos.system import System

pytestmark = pytest.mark.timeout(600)  # a system of nine processes on whatever machine there is


@pytest.fixture(scope="module")
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One system for all; in the end nothing may be lost, sent after its stop, or sent twice without a reason."""
    folder = tmp_path_factory.mktemp("chaos")
    engine = request.config.getoption("--engine")
    with judged(folder, folder / "chaos.md", per_second=6, seed=1, engine=engine, memory=False) as running:
        yield running


def test_killed_at_every_point(system: System) -> None:
    """Each service dies before and after each of its effects, all of them at work, and the system gets over it."""
    faults.sweep(system)


def test_kafka_killed(system: System) -> None:
    """The broker is killed and started again: no service needs a hand."""
    faults.kafka_killed(system)


def test_postgres_killed(system: System) -> None:
    """The database is killed and started again."""
    faults.postgres_killed(system)


@pytest.mark.parametrize("what", ["Kafka", "PostgreSQL"])
def test_connections_cut_in_a_batch(system: System, what: str) -> None:
    """A batch is torn in the middle, and all connections are reset with it."""
    faults.connections_torn(system, what)


def test_providers_away(system: System) -> None:
    """Twenty seconds without any provider: the backlog is delivered when they are back."""
    faults.providers_away(system, 20.0)
