"""Steps of the clock, and what the metrics say of a loop that works, lags or stands still."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Histogram

from relay.delays.clock import WallClock
from relay.delays.config import DelaysConfig
from relay.delays.metrics import _BUCKETS, DelaysMetrics
from relay.delays.records import Held, hold, output
from schemas.topics import TIERS, Naming

SECOND_NS = 1_000_000_000
NOW = 1_790_000_000_000


class Times:
    """A wall clock and a monotonic one, set by hand."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000 * SECOND_NS, 5 * SECOND_NS

    def clock(self) -> WallClock:
        return WallClock(lambda: self.wall, lambda: self.monotonic)


@pytest.mark.parametrize(("set_ms", "step"), [(0, 0), (400, 0), (-400, 0), (2_000, 2_000), (-90_000, -90_000)])
def test_a_step_is_told_once(set_ms: int, step: int) -> None:
    """Both clocks going on is no step, and neither is a small correction; a real one is told once, with its sign."""
    times = Times()
    clock = times.clock()
    times.monotonic += 7 * SECOND_NS
    times.wall += 7 * SECOND_NS + set_ms * 1_000_000
    assert clock.now() == 1_007_000 + set_ms
    assert clock.step_ms() == step
    assert clock.step_ms() == 0


@pytest.fixture
def measured() -> tuple[CollectorRegistry, DelaysMetrics, list[float]]:
    """Metrics, and the second that their clock shows."""
    seconds = [1_000.0]
    registry = CollectorRegistry()
    return registry, DelaysMetrics(registry, clock=lambda: seconds[0]), seconds


def lag(registry: CollectorRegistry, tier: str) -> float | None:
    """The lag of a tier."""
    return registry.get_sample_value("rung_delays_lag_seconds", {"tier": tier})


def test_every_series_is_there_from_the_start(measured: tuple[CollectorRegistry, DelaysMetrics, list[float]]) -> None:
    """A rate over a series that appears with its first event misses that event."""
    registry, _, _ = measured
    assert registry.get_sample_value("rung_delays_forwarded_total", {"target": "due"}) == 0
    assert registry.get_sample_value("rung_delays_transactions_total", {"outcome": "aborted"}) == 0
    assert registry.get_sample_value("rung_dead_letters_total", {"service": "delays", "reason": "bad_header"}) == 0
    assert lag(registry, "64h") == 0


def test_what_waits_for_its_moment_is_no_lag(measured: tuple[CollectorRegistry, DelaysMetrics, list[float]]) -> None:
    """Held records with a moment to come are neither overdue nor lag."""
    registry, metrics, seconds = measured
    metrics.looked(1, {"2m": 40}, {"2m": 1_060_000}, {})
    seconds[0] += 1
    assert registry.get_sample_value("rung_delays_held_records", {"tier": "2m"}) == 40
    assert registry.get_sample_value("rung_delays_oldest_overdue_seconds") == 0
    assert lag(registry, "2m") == 0


def test_overdue_and_late_reading_show(measured: tuple[CollectorRegistry, DelaysMetrics, list[float]]) -> None:
    """A record held past its moment, and one that was read late, show as ages of their tiers."""
    registry, metrics, _ = measured
    metrics.looked(2, {"1s": 1}, {"1s": 997_000}, {"5s": 8_000})
    assert registry.get_sample_value("rung_delays_oldest_overdue_seconds") == 3
    assert lag(registry, "1s") == 3
    assert lag(registry, "5s") == 8
    metrics.looked(2, {}, {}, {})
    assert lag(registry, "5s") == 0


def test_a_loop_that_stands_still_lags(measured: tuple[CollectorRegistry, DelaysMetrics, list[float]]) -> None:
    """Without Kafka nothing is read and nothing is seen to be late; the lag grows all the same."""
    registry, metrics, seconds = measured
    metrics.looked(1, {"1s": 1}, {"1s": 1_001_000}, {})
    seconds[0] += 60
    assert lag(registry, "30s") == 60
    assert registry.get_sample_value("rung_delays_oldest_overdue_seconds") == 59


def test_due_lags_show_as_the_library_would_show_them() -> None:
    """What is counted for a whole transaction is what one observation after the other would have given; what went on
    to another tier has no due lag, and neither has a dead letter."""
    registry, other = CollectorRegistry(), CollectorRegistry()
    metrics = DelaysMetrics(registry)
    one_by_one = Histogram("x", "x", buckets=_BUCKETS, registry=other)
    lags_ms = (0, 4, 5, 6, 249, 250, 251, 59_999, 3_600_000, 3_600_001, 86_400_000)
    for part in (lags_ms[:5], lags_ms[5:]):
        outputs = [output(at(NOW - lag), NOW) for lag in part]
        outputs += [output(at(NOW + 60_000), NOW), output(at(None), NOW)]
        metrics.committed(outputs, NOW, 0.01)
    for lag in lags_ms:
        one_by_one.observe(lag / 1000)
    shown = {s.name + str(s.labels): s.value for m in registry.collect() for s in m.samples}
    for sample in (s for m in other.collect() for s in m.samples if not s.name.endswith("_created")):
        name = "rung_delays_due_lag_seconds" + sample.name[1:] + str(sample.labels)
        assert shown[name] == pytest.approx(sample.value), name
    assert registry.get_sample_value("rung_delays_forwarded_total", {"target": "due"}) == len(lags_ms)
    assert registry.get_sample_value("rung_delays_forwarded_total", {"target": "30s"}) == 2
    assert registry.get_sample_value("rung_dead_letters_total", {"service": "delays", "reason": "missing_header"}) == 2


def at(moment: int | None) -> Held:
    """A record that waits for a moment, or that has none."""
    headers: list[tuple[str, bytes | str | None]] = [] if moment is None else [("due_at", str(moment).encode())]
    return hold(TIERS[0], (0, 0), b"ada", b"{}", headers, NOW, NOW)


def test_names_on_the_cluster_take_the_prefix() -> None:
    """Two systems on one cluster do not share a group or a transactional id."""
    config = DelaysConfig({}, "7", Naming("eu."))
    assert (config.group, config.transactional_id) == ("eu.rung-delays", "eu.rung-delays-7")


@pytest.mark.parametrize("fault", [{"instance_id": ""}, {"batch_size": 0}, {"read_ahead": 0}])
def test_settings_that_cannot_work_are_refused(fault: dict[str, object]) -> None:
    """At the start, with the field's name."""
    with pytest.raises(ValueError, match=next(iter(fault))):
        DelaysConfig({}, **({"instance_id": "a"} | fault))  # type: ignore[arg-type]
