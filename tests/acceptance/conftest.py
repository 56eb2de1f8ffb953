"""The system as `rung up --json` starts it, and the world around it: a database client, two providers, one reader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.world import World


@pytest.fixture(scope="session")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One running system for all tests; each test uses recipients of its own."""
    with World(tmp_path_factory.mktemp("acceptance"), request.config.getoption("--engine")) as running:
        yield running


@pytest.fixture
def who(unique: str) -> str:
    """A recipient that no other test has."""
    return f"person-{unique}"
