"""What a consumer's statistics say about Kafka being heard."""

from __future__ import annotations

import json
from typing import Any

import pytest

from processor.delivery.hearing import Hearing


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def broker(state: str = "UP", idle_us: int = 50_000, reads: int = 4) -> dict[str, Any]:
    """One broker's part, with fields that nobody asked for, as the client writes them."""
    partitions = {f"deliveries-{n}": {"topic": "deliveries", "partition": n} for n in range(reads)}
    return {"name": "b", "nodeid": 1, "state": state, "rxidle": idle_us, "rx": 1, "toppars": partitions}


def heard_after(seconds: float, **brokers: dict[str, Any]) -> float:
    """How old the last word is when these statistics come this long after the start."""
    clock = Clock()
    hearing = Hearing(clock)
    clock.now += seconds
    hearing.take(json.dumps({"name": "rdkafka#consumer-1", "ts": 1, "brokers": brokers}))
    return round(clock.now - hearing.heard_at, 3)


def test_the_silence_is_that_of_the_quietest_broker() -> None:
    """Each leads partitions of its own, and none stands in for another."""
    assert heard_after(10, one=broker()) == 0.05
    assert heard_after(10, one=broker(), two=broker(idle_us=3_000_000)) == 3.0


@pytest.mark.parametrize("lost", [broker("TRY_CONNECT", -1), broker("CONNECT", 5), broker("UP", -1)])
def test_a_broker_without_a_connection_is_not_heard(lost: dict[str, Any]) -> None:
    """Its last word lies before the connection was lost: what was known before stays the last word."""
    assert heard_after(10, one=broker(), two=lost) == 10.0


def test_brokers_that_nothing_is_read_from_do_not_count() -> None:
    """The coordinator's connection is quiet for seconds, and a bootstrap server's may be closed."""
    others = {"coordinator": broker("UP", 2_900_000, 0), "bootstrap": broker("INIT", -1, 0)}
    assert heard_after(10, one=broker(), **others) == 0.05


def test_without_partitions_there_is_nothing_to_hear() -> None:
    """A worker that waits for its share is not cut off, and its share comes with a read-back."""
    assert heard_after(10, coordinator=broker("UP", 2_900_000, 0)) == 0.0


def test_the_last_word_does_not_get_older_by_a_late_statistic() -> None:
    """Statistics that were made before others, or from a slower clock, take nothing back."""
    clock = Clock()
    hearing = Hearing(clock)
    hearing.take(json.dumps({"brokers": {"one": broker(idle_us=1_000)}}))
    before = hearing.heard_at
    hearing.take(json.dumps({"brokers": {"one": broker(idle_us=900_000)}}))
    assert hearing.heard_at == before
