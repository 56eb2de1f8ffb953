"""The engines that the contract is held against."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import EngineUnderTest, KafkaUnderTest, MemoryUnderTest, StartOnKafka

ON_KAFKA = ("quix", "faust")


@pytest.fixture(params=["memory", *ON_KAFKA])
def engine(request: pytest.FixtureRequest) -> EngineUnderTest:
    """Each engine in turn, started, with the decision of the contract suite."""
    if request.param == "memory":
        return MemoryUnderTest()
    return request.getfixturevalue("start_on_kafka")(engine=request.param)  # type: ignore[no-any-return]


@pytest.fixture(params=ON_KAFKA)
def on_kafka(request: pytest.FixtureRequest, start_on_kafka: StartOnKafka) -> StartOnKafka:
    """Starts processors of each engine on Kafka in turn."""
    return partial(start_on_kafka, engine=request.param)


@pytest.fixture
def start_on_kafka(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[StartOnKafka]:
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
