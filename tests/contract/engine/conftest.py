"""The engines that the contract is held against."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import EngineUnderTest, KafkaUnderTest, MemoryUnderTest, StartOnKafka


@pytest.fixture(params=["memory", "quix"])
def engine(request: pytest.FixtureRequest) -> EngineUnderTest:
    """Each engine in turn, started, with the decision of the contract suite."""
    if request.param == "memory":
        return MemoryUnderTest()
    return request.getfixturevalue("on_kafka")()  # type: ignore[no-any-return]


@pytest.fixture
def on_kafka(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[StartOnKafka]:
    """Starts processors on Kafka, with topics of their own; none is left running."""
    started: list[KafkaUnderTest] = []

    def start(**options: Any) -> KafkaUnderTest:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(KafkaUnderTest(kafka, topic_prefix, folder, **options))
        started[-1].start()
        return started[-1]

    yield start
    for processor in started:
        processor.close()
