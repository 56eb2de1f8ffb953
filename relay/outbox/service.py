"""The relay as a service: sessions one after the other, and the upkeep of partitions, until it is told to stop."""

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import psycopg
import structlog
from prometheus_client import CollectorRegistry
from tenacity import Retrying, retry_if_exception_type, stop_when_event_set

from relay.outbox.config import OutboxConfig
from relay.outbox.leases import LeaseLostError
from relay.outbox.loop import Session, backoff, void
from relay.outbox.metrics import OutboxMetrics
from relay.outbox.migrations import check_schema
from relay.outbox.upkeep import Upkeep

_LOG = structlog.get_logger("rung.outbox")
SWITCH_SECONDS = 0.0005


def run(config: OutboxConfig, stop: threading.Event, registry: CollectorRegistry) -> None:
    """Publish the outbox until `stop` is set; then finish what is in flight within `shutdown_seconds` and return.

    Kafka or PostgreSQL being away is waited out, for ever.

    Raises:
        MigrationError: database and code do not fit.
        RestoredDatabaseError: the stored positions belong to another server.
        psycopg.Error: the database refuses a statement (a missing privilege, say).
    """
    metrics = OutboxMetrics(registry)
    if not _patiently(config, stop, metrics, lambda: check_schema(config.database_url)):
        return
    # The page ahead is read beside the publishing of the one before, and must not wait for the interpreter at each turn
    # to the server for as long as Python lets a thread have it.
    sys.setswitchinterval(SWITCH_SECONDS)
    upkeep = Upkeep(config, stop)
    upkeep.start()
    watched = replace(config, beat=partial(_beat, upkeep, config.beat))
    try:
        while not stop.is_set():
            _patiently(watched, stop, metrics, lambda: _session(watched, stop, metrics))
    finally:
        upkeep.join(config.shutdown_seconds)


def _beat(upkeep: Upkeep, beat: Callable[[], None]) -> None:
    upkeep.check()
    beat()


def _session(config: OutboxConfig, stop: threading.Event, metrics: OutboxMetrics) -> None:
    try:
        Session(config, metrics, stop).run()
    except LeaseLostError as lost:
        metrics.failures.labels("lease").inc()
        _LOG.warning("lease_lost", why=str(lost))


def _patiently(config: OutboxConfig, stop: threading.Event, metrics: OutboxMetrics, call: Callable[[], None]) -> bool:
    """Call until the database is there; False if told to stop before."""

    def note(_state: object) -> None:
        metrics.failures.labels("postgres").inc()
        _LOG.warning("postgres_away")

    retrying = Retrying(
        wait=backoff(config),
        stop=stop_when_event_set(stop),
        retry=retry_if_exception_type(psycopg.OperationalError),
        after=note,
        sleep=lambda seconds: void(stop.wait(seconds)),
        retry_error_callback=lambda _state: False,
    )

    def attempt() -> bool:
        config.beat()
        call()
        return True

    return bool(retrying(attempt))
