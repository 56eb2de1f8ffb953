"""Fixtures that every test may ask for; a server starts when the first test asks for it, once per session."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support import postgres, servers

# A property has no limit for each example: a busy machine is no fault of the code, and each test has its limit.
settings.register_profile("rung", deadline=None)
settings.load_profile("rung")


# A shell starts what it puts into the background with this signal ignored, and every process from there on inherits
# that: Ctrl-C, which some tests send, would then reach nobody.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run choose its servers."""
    group = parser.getgroup("servers")
    group.addoption("--kafka", default="embedded", metavar="embedded|docker|HOST:PORT", help="the Kafka to test on")
    group.addoption("--postgres", default="embedded", metavar="embedded|docker|URL", help="the PostgreSQL to test on")
    whole = parser.getgroup("whole systems")
    whole.addoption("--engine", default="quix", choices=("quix", "faust"), help="the processor's, in acceptance, chaos")
    suite = parser.getgroup("crash suite")
    suite.addoption("--chaos", default="short", choices=("short", "long"), help="the form of tests/chaos")
    suite.addoption("--chaos-seconds", default="600", metavar="SECONDS", help="how long the long form kills at random")
    suite.addoption("--chaos-report", default="chaos.md", metavar="FILE", help="where the long form writes its table")


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of a Kafka shared by the session: use `unique` in the names of topics and groups."""
    with servers.kafka_server(request.config.getoption("--kafka"), tmp_path_factory.mktemp("kafka")) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A superuser's address of a PostgreSQL shared by the session; tests take `database_url`."""
    folder = tmp_path_factory.mktemp("postgres")
    with servers.postgres_server(request.config.getoption("--postgres"), folder) as url:
        yield url


@pytest.fixture
def database_url(postgres_server: str) -> Iterator[str]:
    """The address of an empty database of the test's own, as superuser; dropped afterwards."""
    url = postgres.create_database(postgres_server)
    yield url
    postgres.drop_database(postgres_server, url)


@pytest.fixture
def unique() -> str:
    """A short string that no other test has, for names of topics, groups and recipients."""
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic_prefix(unique: str) -> str:
    """What to put before the name of each topic: `unique` and a dot."""
    return f"{unique}."
