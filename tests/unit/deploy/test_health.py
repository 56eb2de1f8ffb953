"""What a service says about itself, on a clock of the test's own; and the watchdog that acts on it."""

from __future__ import annotations

import threading

import pytest

from deploy.health import Health, Watchdog, probe_seconds
from tests.support.eventually import eventually

PLACE = ("due", 3)


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The health's clock."""
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    """One with the default limit of a minute."""
    return Health(60, clock)


def test_a_service_is_ready_once_it_says_so(health: Health) -> None:
    """Healthy from the start, ready only with a share of the work, and not without it."""
    assert health.healthz() == (True, "ok")
    assert health.readyz() == (False, "it has no share of the work yet")
    health.ready(True)
    assert health.readyz() == (True, "ok")
    health.ready(False)
    assert not health.readyz()[0]


def test_a_loop_without_turns_is_told_from_half_of_the_limit_on(health: Health, clock: Clock) -> None:
    """First on /healthz, then as a fault; a turn ends both."""
    health.ready(True)
    clock.now += 29
    assert health.healthz()[0]
    clock.now += 2
    assert health.healthz() == (False, "its loop has made no turn for 31 s")
    assert not health.readyz()[0]
    assert health.fault() is None
    clock.now += 30
    assert health.fault() == "its loop has made no turn for 61 s"
    health.beat()
    assert health.healthz()[0]
    assert health.fault() is None


def test_without_a_limit_nothing_is_a_fault(clock: Clock) -> None:
    """0 switches it off."""
    health = Health(0, clock)
    clock.now += 10_000
    assert health.fault() is None
    assert health.healthz()[0]


def test_a_server_that_is_away_is_not_the_services_fault(health: Health, clock: Clock) -> None:
    """Not ready with the server's name, healthy however long it lasts, and a full limit of time once it is back."""
    health.ready(True)
    health.away("Kafka", True)
    clock.now += 600
    assert health.readyz() == (False, "Kafka: no answer")
    assert health.healthz()[0]
    assert health.fault() is None
    health.away("Kafka", False)
    clock.now += 59
    assert health.fault() is None
    clock.now += 2
    assert health.fault() is not None


def move(health: Health, clock: Clock, seconds: float, position: int, end: int) -> str | None:
    """Time passes, the loop turns, and the reading is where it is."""
    clock.now += seconds
    health.beat()
    health.progress({PLACE: (position, end)})
    return health.fault()


def test_a_position_that_stands_still_while_more_comes_is_a_fault(health: Health, clock: Clock) -> None:
    """Although the loop turns."""
    assert move(health, clock, 0, 7, 9) is None
    assert move(health, clock, 1, 7, 12) is None
    assert move(health, clock, 58, 7, 15) is None
    assert move(health, clock, 3, 7, 15) == "due[3] stands still at offset 7 for 61 s while more comes in"


@pytest.mark.parametrize("left", [1, 40])
def test_what_is_never_read_is_no_standing_still(health: Health, clock: Clock, left: int) -> None:
    """The marker of a transaction, or the records of one that was aborted, lie behind the last record for ever."""
    assert move(health, clock, 0, 7, 7) is None
    assert move(health, clock, 1, 7, 7 + left) is None
    assert move(health, clock, 3_600, 7, 7 + left) is None
    assert move(health, clock, 1, 9 + left, 10 + left) is None


def test_the_time_in_which_a_server_was_away_is_no_standing_still(health: Health, clock: Clock) -> None:
    """What comes in after its return must come in for as long as what came in before."""
    assert move(health, clock, 0, 7, 9) is None
    assert move(health, clock, 1, 7, 12) is None
    assert move(health, clock, 40, 7, 15) is None
    health.away("Kafka", True)
    health.away("Kafka", False)
    assert move(health, clock, 10, 7, 18) is None
    assert move(health, clock, 51, 7, 18) is None
    assert move(health, clock, 1, 7, 21) is not None


def test_a_quiet_partition_may_stand_still(health: Health, clock: Clock) -> None:
    """Nothing new is no fault however long it lasts, also where the last offset holds no record; and the time counts
    from when more comes."""
    assert move(health, clock, 0, 7, 8) is None
    assert move(health, clock, 3_600, 7, 8) is None
    assert move(health, clock, 1, 7, 10) is None
    assert move(health, clock, 1, 9, 10) is None
    assert move(health, clock, 3_600, 9, 10) is None


@pytest.mark.parametrize("unknown", [-1001, -1, 0])
def test_an_end_that_becomes_known_is_no_growth(health: Health, clock: Clock, unknown: int) -> None:
    """A client says a negative end until it has asked; an empty partition then has nothing to do for ever."""
    assert move(health, clock, 0, 0, unknown) is None
    assert move(health, clock, 1, 0, 0) is None
    assert move(health, clock, 3_600, 0, 0) is None


def test_a_partition_that_went_to_another_replica_is_forgotten(health: Health, clock: Clock) -> None:
    """What was wrong with it is not this replica's any more."""
    move(health, clock, 0, 7, 9)
    move(health, clock, 1, 7, 12)
    health.progress({})
    clock.now += 59
    health.beat()
    clock.now += 5
    assert health.fault() is None


def test_the_watchdog_ends_what_stalls_and_asks_the_servers_first() -> None:
    """A probe that fails keeps it from ending anything; when it succeeds again the stall counts."""
    there, ended = threading.Event(), threading.Event()
    health = Health(1.0)
    watchdog = Watchdog(health, {"Kafka": there.is_set}, threading.Event(), 5, lambda fault: ended.set())
    watchdog.start()
    try:
        eventually(lambda: health.readyz()[1] == "Kafka: no answer")
        assert not ended.wait(2)
        there.set()
        assert ended.wait(10)
    finally:
        watchdog.close()


def test_a_stop_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service was told to stop and hangs: its limit and a little more, and then it is ended."""
    monkeypatch.setattr("deploy.health.LATE_SECONDS", 0.1)
    stop, faults = threading.Event(), []
    watchdog = Watchdog(Health(0), {}, stop, 0.1, faults.append)
    watchdog.start()
    try:
        stop.set()
        eventually(lambda: faults == ["it did not stop within 0 s"])
    finally:
        watchdog.close()


def test_a_server_is_asked_often_enough() -> None:
    """It is found away well before the limit, and without a limit at a usual pace."""
    assert probe_seconds(60) == 5.0
    assert probe_seconds(8) == 2.0
    assert probe_seconds(0) == 5.0
