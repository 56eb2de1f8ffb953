"""A stage with an HTTP provider for each test of the delivery worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.topics import Naming
from tests.support.delivery import Stage
from tests.support.sinks import Sink, running_sink


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    """An HTTP provider."""
    with running_sink("http", tmp_path) as running:
        yield running


@pytest.fixture
def make_stage(kafka: str, topic_prefix: str, tmp_path: Path, sink: Sink) -> Iterator[Callable[..., Stage]]:
    """Make the test's stage; arguments are further fields of the provider of channel `push`;
    None leaves one out."""
    stages: list[Stage] = []

    def make(partitions: int = 4, **fields: Any) -> Stage:
        given = {"adapter": '"webhook"', "name": '"push"', "url": f'"{sink.url}/push"', **fields}
        providers = ", ".join(f"{name} = {text}" for name, text in given.items() if text is not None)
        channels = f"[channels.push]\nproviders = [{{ {providers} }}]\n"
        stages.append(Stage(kafka, Naming(topic_prefix), tmp_path / "config", channels, partitions))
        return stages[-1]

    (tmp_path / "config").mkdir()
    yield make
    for stage in stages:
        stage.close()
