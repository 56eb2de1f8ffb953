"""Run one service as a process: logs, metrics, signals, and an exit code that tells how it ended."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable

import structlog
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from deploy import logs
from deploy.settings import Settings

Run = Callable[[threading.Event, CollectorRegistry], None]
FAILED = 1


def run_service(name: str, settings: Settings, run: Run) -> None:
    """Block until the service has stopped in order (SIGTERM or SIGINT), then exit 0; exit 1 if it could not go on."""
    logs.configure(settings.log_level, name)
    log = structlog.get_logger("rung.service")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    if settings.metrics_port:
        start_http_server(settings.metrics_port, registry=registry)
    log.info("service_started", instance=settings.instance_id, metrics_port=settings.metrics_port)
    try:
        run(stop, registry)
    except Exception as error:
        log.exception("service_failed", error=type(error).__name__)
        sys.exit(FAILED)
    log.info("service_stopped")
