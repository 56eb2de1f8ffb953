"""Run one service as a process: logs, metrics, health, signals, and an exit code that tells how it ended."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from deploy import garbage, health_server, logs
from deploy.health import Health, Probe, Watchdog, probe_seconds
from deploy.preflight import Needs, passes
from deploy.probes import KafkaProbe, PostgresProbe
from deploy.refusals import RefusedError
from deploy.settings import Settings
from deploy.signals import stop_on_signals

Run = Callable[[threading.Event, CollectorRegistry], None]
FAILED = 1
REFUSED = 2


def run_service(
    name: str, settings: Settings, run: Run, *, health: Health | None = None, needs: Needs | None = None
) -> None:
    """Block until the service has stopped in order (SIGTERM or SIGINT), then exit 0.

    Exit 1 if it could not go on; 2 if it was not let start, because that would lose data; `health.STALLED` if it made
    no progress.

    Args:
        name: the service's.
        settings: the environment's.
        run: blocks until told to stop.
        health: what `run` tells about itself; without one nobody watches it.
        needs: what must be true before it runs.
    """
    logs.configure(settings.log_level, name)
    log = structlog.get_logger("rung.service")
    stop = threading.Event()
    stop_on_signals(stop)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    watched = health or Health(0)
    if settings.metrics_port:
        health_server.serve(settings.metrics_port, registry, watched)
    log.info("service_started", instance=settings.instance_id, metrics_port=settings.metrics_port)
    watchdog = Watchdog(watched, _probes(settings, needs), stop, settings.shutdown_seconds)
    if health is not None:
        watchdog.start()
    try:
        if needs is None or passes(needs, stop, watched):
            garbage.seldom()
            run(stop, registry)
    except RefusedError as refused:
        log.error("start_refused", reason=str(refused))
        sys.exit(REFUSED)
    except Exception as error:
        log.exception("service_failed", error=type(error).__name__)
        sys.exit(FAILED)
    finally:
        watchdog.close()
    log.info("service_stopped")


def _probes(settings: Settings, needs: Needs | None) -> dict[str, Probe]:
    probes: dict[str, Probe] = {}
    seconds = probe_seconds(settings.stall_seconds)
    # A service that goes on without Kafka is ready without it, too.
    if needs is not None and needs.topics and needs.waits:
        probes["Kafka"] = KafkaProbe(settings.client, seconds)
    if needs is not None and needs.database_url:
        probes["PostgreSQL"] = PostgresProbe(needs.database_url, seconds)
    return probes
