"""The crash suite in its long form (`make chaos`): every point three times, and every fault of the list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.crash import CATALOGUE
from tests.support.chaos import faults
from tests.support.chaos.run import judged
from tests.support.chaos.system import System

POINTS = [point for points in CATALOGUE.values() for point in points]
pytestmark = pytest.mark.timeout(3_600)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[System]:
    """One system for all; after the last test it is judged, and the table is printed and written."""
    folder = tmp_path_factory.mktemp("chaos")
    report = Path(request.config.getoption("--chaos-report"))
    engine = request.config.getoption("--engine")
    with judged(folder, report, per_second=8, seed=2, engine=engine, memory=True) as running:
        yield running


@pytest.mark.parametrize("passing", [1, 3, 10])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at(system: System, point: str, passing: int) -> None:
    """A service dies at a point under load, at its first passing after a start or later."""
    faults.crash_at(system, point, passing)


def test_random_kills(system: System, request: pytest.FixtureRequest) -> None:
    """Any process may die at any time, for ten minutes."""
    faults.random_kills(system, float(request.config.getoption("--chaos-seconds")), seed=3)


def test_rolling_restart(system: System) -> None:
    """Every process is ended in order and started again, one after the other: a deploy."""
    faults.rolling_restart(system)


@pytest.mark.parametrize("service", ["processor", "deliver"])
def test_scaled(system: System, service: str) -> None:
    """From one to two to three and back to one."""
    faults.scale(system, service)


@pytest.mark.parametrize("name", ["deliver-1", "processor-1"])
def test_frozen_past_its_session(system: System, name: str) -> None:
    """A process that was frozen while others took over its partitions writes nothing and calls nobody when it wakes."""
    faults.zombie(system, name)


@pytest.mark.parametrize("time", [1, 2, 3])
def test_kafka_killed(system: System, time: int) -> None:
    """The broker is killed and started again: no service needs a hand."""
    faults.kafka_killed(system)


@pytest.mark.parametrize("time", [1, 2, 3])
def test_postgres_killed(system: System, time: int) -> None:
    """The database is killed and started again."""
    faults.postgres_killed(system)


@pytest.mark.parametrize("time", [1, 2, 3])
@pytest.mark.parametrize("what", ["Kafka", "PostgreSQL"])
def test_connections_cut(system: System, what: str, time: int) -> None:
    """All connections to a server are reset at once."""
    faults.connections_cut(system, what)


@pytest.mark.parametrize("time", [1, 2, 3])
@pytest.mark.parametrize("what", ["Kafka", "PostgreSQL"])
def test_connections_cut_in_a_batch(system: System, what: str, time: int) -> None:
    """A batch is torn in the middle, and all connections are reset with it."""
    faults.connections_torn(system, what)


def test_state_wiped(system: System) -> None:
    """The local state is lost: the changelog restores it."""
    faults.state_wiped(system)


def test_providers_away(system: System) -> None:
    """Five minutes without any provider: the backlog is delivered when they are back."""
    faults.providers_away(system, 300.0)


def test_transaction_open(system: System) -> None:
    """A producer that died in a transaction holds readers back until Kafka ends it."""
    faults.transaction_open(system)


def test_row_open(system: System) -> None:
    """A business transaction that stays open holds nobody back, and its own request is not lost."""
    faults.row_open(system)
