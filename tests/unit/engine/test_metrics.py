"""The processor's metrics: zero from the start, counted by what was decided, and lag as an age."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from processor.domain.decide import decide
from processor.engine.memory import MemoryEngine
from processor.engine.metrics import STALE_SECONDS, LagTracker, ProcessorMetrics
from schemas import records as r
from schemas.profile import Profile
from schemas.reasons import DeadReason, Reason
from schemas.topics import NOTIFICATIONS
from tests.support.engine import notify
from tests.support.recipient import ladder

NOON = 1_777_636_800_000
MINUTE = 60_000


class Wall:
    """A clock in seconds that the test moves."""

    now = 1_000_000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def test_every_label_value_is_there_from_the_start() -> None:
    """A rate over a counter that has not counted yet is zero, and not absent."""
    registry = CollectorRegistry()
    ProcessorMetrics(registry, ["payment"])
    assert all(
        registry.get_sample_value("rung_processor_decisions_total", {"reason": reason.value}) == 0 for reason in Reason
    )
    assert all(
        registry.get_sample_value("rung_dead_letters_total", {"service": "processor", "reason": reason.value}) == 0
        for reason in DeadReason
    )
    for event in ("NotifyReceived", "ResolutionReceived", "WokeUp", "OutcomeReceived"):
        assert registry.get_sample_value("rung_processor_events_total", {"type": event}) == 0
    for topic in ("notifications", "resolutions", "due", "outcomes"):
        assert registry.get_sample_value("rung_processor_lag_seconds", {"topic": topic}) == 0
    assert registry.get_sample_value("rung_processor_escalation_depth_count", {"kind": "payment"}) == 0


def test_a_run_is_counted() -> None:
    """Events, decisions, commands, published events, due lag, depth and dead letters of one short story."""
    registry = CollectorRegistry()
    ladders = {"payment": ladder(("push", 0), ("chat", 10))}
    engine = MemoryEngine(decide, ladders, start=NOON, metrics=ProcessorMetrics(registry, ladders))
    engine.send(r.PutRecipient(recipient="ada", profile=Profile(addresses={"push": "t", "chat": "@ada"})))
    engine.send(notify("ada", "k"))
    engine.send(r.Resolve(recipient="ada", dedup_key="k", resolution="paid"))
    engine.feed(NOTIFICATIONS, b"ada", b"{", None)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("rung_processor_events_total", type="NotifyReceived") == 1
    assert value("rung_processor_decisions_total", reason="accepted") == 1
    assert value("rung_processor_commands_total", command="Deliver") == 1
    assert value("rung_processor_delivery_events_total", type="rung.notification.resolved") == 1
    assert value("rung_processor_due_lag_seconds_count") == 1
    assert value("rung_processor_last_due_lag_seconds") == 0
    assert value("rung_processor_escalation_depth_count", kind="payment") == 1
    assert value("rung_dead_letters_total", service="processor", reason="missing_header") == 1


def test_lag_is_zero_while_nothing_waits() -> None:
    """However old the last record is."""
    wall = Wall()
    lag = LagTracker(wall)
    lag.looked({0: False})
    lag.processed(0, 1_000)
    assert lag.seconds() == 0


def test_lag_of_a_backlog_is_the_age_of_its_records() -> None:
    """An instance that starts with an hour of backlog tells an hour, and less as it catches up."""
    wall = Wall()
    lag = LagTracker(wall)
    lag.looked({0: True})
    lag.processed(0, round((wall.now - 3_600) * 1000))
    assert lag.seconds() == pytest.approx(3_600)
    lag.processed(0, round((wall.now - 60) * 1000))
    assert lag.seconds() == pytest.approx(60)


def test_lag_after_a_quiet_hour_counts_from_when_nothing_waited() -> None:
    """The record before the one that waits may be old; that does not make the one that waits old."""
    wall = Wall()
    lag = LagTracker(wall)
    lag.processed(0, round((wall.now - 3_600) * 1000))
    lag.looked({0: False})
    wall.now += 1
    lag.looked({0: True})
    assert lag.seconds() == pytest.approx(1)


def test_lag_of_an_engine_that_stands_still_grows() -> None:
    """If the engine does not look any more, the last thing it saw is no comfort."""
    wall = Wall()
    lag = LagTracker(wall)
    lag.looked({0: False, 1: False})
    wall.now += STALE_SECONDS
    assert lag.seconds() == 0
    wall.now += 55
    assert lag.seconds() == pytest.approx(STALE_SECONDS + 55)


def test_partitions_that_went_away_do_not_count() -> None:
    """What another instance holds is not this one's lag."""
    wall = Wall()
    lag = LagTracker(wall)
    lag.looked({0: True})
    lag.processed(0, 1_000)
    lag.looked({})
    assert lag.seconds() == 0
