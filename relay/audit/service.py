"""The audit as a service: one run with a report, or rounds for ever whose counters must stay 0."""

import threading
import time
from collections.abc import Iterable

import psycopg
import structlog
from confluent_kafka import KafkaException
from prometheus_client import CollectorRegistry

from relay.audit.config import AuditConfig
from relay.audit.metrics import AuditMetrics
from relay.audit.report import Report
from relay.audit.rounds import Auditor, Stopping, now_ms
from relay.audit.rules import Violation
from relay.audit.services import ServiceCounters
from relay.journal.faults import Fault, classify

PAUSE_SECONDS = 0.25

log = structlog.get_logger("rung.audit")


def run_once(config: AuditConfig) -> Report:
    """Audit once: what was committed when it began, until all of it is judged.

    Raises:
        KafkaException, psycopg.Error: what is to be read cannot be read.
        OSError, ValueError: an address of metrics does not answer, or is none.
    """
    report = Report(started_at=now_ms(), since=config.since)
    with Auditor(config, report.add) as auditor:
        services = ServiceCounters(config.metrics) if config.metrics else None
        if services is not None:
            auditor.recount_since = services.started_at
        auditor.round()
        while auditor.waiting:
            time.sleep(PAUSE_SECONDS)
            auditor.round(requests=False)
        if services is not None:
            report.add(services.compare(auditor))
            report.notes += services.notes
        auditor.tell(report)
    report.ended_at = now_ms()
    return report


def run(config: AuditConfig, stop: threading.Event, registry: CollectorRegistry) -> None:
    """Audit round after round until `stop` is set; each violation is counted and logged once.

    A round that Kafka or PostgreSQL cut short is taken up where it stood. After a restart everything is read again, and
    what is still wrong is counted again.

    Raises:
        psycopg.Error: the database lacks the migrations or the rights.
        ValueError: an address of metrics is none.
    """
    metrics = AuditMetrics(registry)

    def found(violations: Iterable[Violation]) -> None:
        for violation in violations:
            metrics.violations.labels(violation.rule.value).inc()
            log.error(
                "violation",
                rule=violation.rule.value,
                notification_id=violation.notification_id,
                detail=violation.detail,
            )

    services = ServiceCounters(config.metrics) if config.metrics else None
    with Auditor(config, found, stop) as auditor:
        log.info("audit_started", since=config.since)
        while not stop.is_set():
            try:
                _round(auditor, services, metrics)
                config.ready(True)
            except Stopping:
                break
            except (KafkaException, psycopg.Error, OSError) as error:
                if isinstance(error, psycopg.Error) and classify(error) is Fault.OURS:
                    raise
                config.ready(False)
                metrics.failures.inc()
                auditor.disconnect()
                log.warning("round_cut_short", error=type(error).__name__)
            stop.wait(config.interval_seconds)
    log.info("audit_stopped")


def _round(auditor: Auditor, services: ServiceCounters | None, metrics: AuditMetrics) -> None:
    before = dict(auditor.checked)
    try:
        auditor.round()
        if services is not None:
            auditor.found(services.compare(auditor))
    finally:
        for what, number in auditor.checked.items():
            metrics.checked.labels(what).inc(number - before.get(what, 0))
    metrics.open.set(auditor.open)
    metrics.waiting.set(auditor.waiting)
    metrics.ended()
