"""A running API on a migrated database, and a client for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from relay.api.config import ApiConfig
from relay.api.service import run
from tests.support import migrated

Serving = Callable[[ApiConfig, CollectorRegistry], AbstractContextManager[str]]


@contextmanager
def _serving(config: ApiConfig, registry: CollectorRegistry) -> Iterator[str]:
    """An API in a thread of its own; yields its address, and ends it in order."""
    stop, bound = threading.Event(), queue.Queue()
    failed: list[BaseException] = []

    def target() -> None:
        try:
            run(config, stop, registry, lambda host, port: bound.put(f"http://{host}:{port}"))
        except BaseException as error:
            failed.append(error)
            bound.put("")

    thread = threading.Thread(target=target, name="api")
    thread.start()
    try:
        yield bound.get(timeout=20)
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive(), "the API did not stop"
        if failed:
            raise failed[0]


@pytest.fixture(scope="session")
def api_template(postgres_server: str) -> Iterator[str]:
    """A migrated database with two kinds, to copy."""
    with migrated.template(postgres_server, ["payment", "welcome"]) as url:
        yield url


@pytest.fixture
def api_db(postgres_server: str, api_template: str) -> Iterator[str]:
    """A database of the test's own with all tables and two kinds."""
    with migrated.database(postgres_server, api_template) as url:
        yield url


@pytest.fixture
def serving() -> Serving:
    """To run an API with settings of the test's own."""
    return _serving


@pytest.fixture
def registry() -> CollectorRegistry:
    """The registry of the running API."""
    return CollectorRegistry()


@pytest.fixture
def api(api_db: str, registry: CollectorRegistry) -> Iterator[str]:
    """The address of an API without a token and without Kafka."""
    with _serving(ApiConfig(database_url=api_db, port=0), registry) as address:
        yield address


@pytest_asyncio.fixture
async def client(api: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A client whose paths are relative to the API."""
    async with aiohttp.ClientSession(api) as session:
        yield session
