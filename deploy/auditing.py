"""`rung audit`: where the system is, how patient the audit is, and what the shell is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import psycopg
from confluent_kafka import KafkaException
from rich.console import Console

from deploy import logs, running
from deploy.health import Health
from deploy.people import AskError
from deploy.preflight import Needs
from deploy.service_runner import run_service
from deploy.settings import Settings
from relay.audit.config import AuditConfig
from relay.outbox.migrations import MigrationError, check_schema
from schemas.topics import Naming

VIOLATED = 1
PATIENCE_SECONDS = 3600.0
"""How long a request may wait for a relay or a processor that is away where the audit runs for ever: what it has
counted cannot be taken back, and how long they are behind is an alert of its own."""


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    since: str | None = None
    settle: float | None = None
    tolerance: float = 60.0
    interval: float = 10.0
    metrics: tuple[str, ...] = ()


def audit_once(settings: Settings, wanted: Wanted, *, as_json: bool) -> int:
    """Audit and print the report; returns the exit code.

    Raises:
        AskError: there is no system, or it cannot be read.
    """
    from relay.audit.report import render
    from relay.audit.service import run_once

    logs.configure(settings.log_level, "audit")
    try:
        config = _config(settings, wanted)
        check_schema(config.database_url)
        report = run_once(config)
    except MigrationError as error:
        raise AskError(str(error)) from None
    except psycopg.Error as error:
        raise AskError(f"the database cannot be read: {str(error).splitlines()[0]}") from None
    except KafkaException as error:
        raise AskError(f"Kafka cannot be read: {error.args[0].str()}") from None
    except (OSError, ValueError) as error:
        raise AskError(f"the metrics cannot be read: {error}") from None
    if as_json:
        print(report.json())
    else:
        render(report, Console(markup=False))
    return 0 if report.clean else VIOLATED


def audit_for_ever(settings: Settings, wanted: Wanted) -> None:
    """Audit until told to stop.

    Raises:
        AskError: there is no system.
    """
    from relay.audit.service import run

    # A round takes as long as there is much to read, so nobody takes a long one for a stall.
    health = Health(0)
    config = replace(_config(settings, wanted), ready=health.ready)
    if wanted.settle is None:
        config = replace(config, settle_seconds=PATIENCE_SECONDS)
    needs = Needs(service="audit", database_url=config.database_url)
    run_service("audit", settings, lambda stop, registry: run(config, stop, registry), health=health, needs=needs)


def _config(settings: Settings, wanted: Wanted) -> AuditConfig:
    config = replace(
        _system(settings, wanted.metrics),
        since=since_option(wanted.since),
        tolerance_seconds=wanted.tolerance,
        interval_seconds=wanted.interval,
        retention_days=settings.journal_retention_days,
        shutdown_seconds=settings.shutdown_seconds,
    )
    return config if wanted.settle is None else replace(config, settle_seconds=wanted.settle)


def _system(settings: Settings, metrics: tuple[str, ...]) -> AuditConfig:
    """The system of the environment, else that which `rung up` runs, with its journal's metrics."""
    if settings.kafka or settings.database_url.get_secret_value():
        return AuditConfig(settings.client, settings.database, settings.naming, metrics=metrics)
    found = running.find()
    if found is None:
        raise AskError("no system found: start one with `rung up`, or set RUNG_KAFKA and RUNG_DATABASE_URL")
    kafka = {**settings.kafka_config, "bootstrap.servers": found.kafka}
    journals = tuple(url for name, url in found.metrics.items() if name.split("-")[0] == "journal")
    return AuditConfig(kafka, found.database_url, Naming(found.topic_prefix), metrics=metrics or journals)


def since_option(text: str | None) -> int | None:
    """The moment of `--since`, in milliseconds since the epoch.

    Raises:
        AskError: it is no RFC 3339 time with an offset.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise AskError(f"--since {text!r} is no RFC 3339 time, such as 2027-01-31T18:00:00+01:00") from None
    if moment.tzinfo is None:
        raise AskError(f"--since {text!r} has no UTC offset; add Z or +01:00")
    return round(moment.timestamp() * 1000)
