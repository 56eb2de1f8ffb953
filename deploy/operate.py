"""The commands that production runs: one for each service, and what prepares the database and the cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sized
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deploy.errors import CommandError
from deploy.settings import Settings, load, load_with

if TYPE_CHECKING:
    import threading

    from prometheus_client import CollectorRegistry

    from deploy.health import Health

topics = typer.Typer(help="The topics on the cluster.", no_args_is_help=True)
ladders = typer.Typer(help="The ladder file.", no_args_is_help=True)


class Engine(StrEnum):
    """What the processor runs on."""

    QUIX = "quix"
    FAUST = "faust"


ConfigDir = Annotated[
    Path | None,
    typer.Option("--config", metavar="FOLDER", help="The configuration directory; RUNG_CONFIG_DIR names it too."),
]


def migrate() -> None:
    """Bring the database's schema to this version."""
    from relay.outbox.migrations import MigrationError
    from relay.outbox.migrations import migrate as run

    try:
        applied = run(load().database)
    except MigrationError as error:
        raise CommandError(str(error)) from None
    print("\n".join(f"applied {name}" for name in applied) or "the schema is up to date")


@topics.command()
def create() -> None:
    """Create the topics that are missing; refuse others with another number of partitions."""
    from deploy.topics import ensure_topics

    settings = load()
    created = ensure_topics(
        settings.client,
        settings.naming,
        partitions=settings.partitions,
        replication_factor=settings.replication_factor,
    )
    print("\n".join(f"created {name}" for name in created) or "every topic is there")


@ladders.command()
def check(config: ConfigDir = None) -> None:
    """Check the configuration directory, and say everything that is wrong with it."""
    from deploy.configuration import ConfigurationError, load_configuration, secrets

    found = load_configuration(load_with(config).config_dir)
    try:
        secrets(found, os.environ)
    except ConfigurationError as error:
        # Where a configuration is checked, its secrets need not be; a start refuses.
        print("\n".join(f"warning: {line}" for line in str(error).splitlines()), file=sys.stderr)
    print(f"{found.folder}: {_count(found.ladders, 'kind')}, {_count(found.channels, 'channel')}, all well")


def _count(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


@ladders.command()
def apply(
    config: ConfigDir = None,
    force: Annotated[bool, typer.Option("--force", help="Drop also what open notifications use.")] = False,
) -> None:
    """Check the configuration directory and publish the names of its kinds to the database."""
    from deploy.configuration import load_configuration
    from deploy.ladder_guard import guard
    from relay.outbox.kinds import publish_kinds

    settings = load_with(config)
    found = load_configuration(settings.config_dir)
    if not force:
        guard(settings.database, found)
    print("kinds: " + ", ".join(publish_kinds(settings.database, found.ladders)))


def accept_loss(
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only shown.")] = False,
) -> None:
    """Show what retention deleted before it was processed, and let the services go on without it."""
    from deploy.accept_loss import accept, find

    settings = load()
    found = find(settings)
    for item in found:
        for loss in item.losses:
            print(f"{item.service}: {loss}; at most {loss.records} records are gone")
        if item.state is not None:
            print(f"{item.service}: its state {item.state} is gone, and every open notification with it")
    if found and not yes:
        print("nothing was changed; --yes goes on without these")
        raise typer.Exit(1)
    accept(settings, found)
    print("the services go on behind these" if found else "nothing is gone")


def _health(settings: Settings) -> Health:
    from deploy.health import Health

    return Health(settings.stall_seconds)


def _armed(settings: Settings) -> Callable[[str], None]:
    from deploy.crash import armed

    return armed(settings.crash_at)


def _serve(
    name: str,
    settings: Settings,
    health: Health,
    run: Callable[[threading.Event, CollectorRegistry], None],
    kinds: Collection[str] | None = None,
) -> None:
    from deploy.needs import needs
    from deploy.service_runner import run_service

    run_service(name, settings, run, health=health, needs=needs(name, settings, kinds))


def outbox() -> None:
    """Publish the rows of the outbox to Kafka."""
    from relay.outbox.config import OutboxConfig
    from relay.outbox.service import run

    s = load()
    health = _health(s)
    config = OutboxConfig(
        kafka=s.client,
        database_url=s.database,
        naming=s.naming,
        replica=s.instance_id,
        shutdown_seconds=s.shutdown_seconds,
        at=_armed(s),
        beat=health.beat,
        ready=health.ready,
    )
    _serve("outbox", s, health, lambda stop, registry: run(config, stop, registry))


def delays() -> None:
    """Hold what waits in the delay topics until it is due."""
    from relay.delays.config import DelaysConfig
    from relay.delays.service import run

    s = load()
    health = _health(s)
    config = DelaysConfig(
        kafka=s.client,
        naming=s.naming,
        instance_id=s.instance_id,
        shutdown_seconds=s.shutdown_seconds,
        at=_armed(s),
        beat=health.beat,
        ready=health.ready,
    )
    _serve("delays", s, health, lambda stop, registry: run(config, stop, registry))


def processor(
    engine: Annotated[
        Engine | None, typer.Option("--engine", help="What it runs on; RUNG_ENGINE names it too.")
    ] = None,
) -> None:
    """Decide what happens to each notification."""
    from deploy.configuration import load_configuration
    from deploy.engines import check
    from processor.engine.config import ProcessorConfig
    from processor.engine.service import run

    s = load()
    if engine is not None:
        s = s.model_copy(update={"engine": engine.value})
    check(s)
    health = _health(s)
    ladders = load_configuration(s.config_dir).ladders
    config = ProcessorConfig(
        kafka=s.client,
        ladders=ladders,
        state_dir=s.state_dir,
        naming=s.naming,
        instance_id=s.instance_id,
        engine=s.engine,
        store=s.state_store,
        memory_mib=s.state_memory_mib,
        shutdown_seconds=s.shutdown_seconds,
        at=_armed(s),
        beat=health.beat,
        ready=health.ready,
        progress=health.progress,
    )
    _serve("processor", s, health, lambda stop, registry: run(config, stop, registry), ladders)


def deliver() -> None:
    """Call the providers."""
    from deploy.configuration import load_configuration, secrets
    from processor.delivery.config import DeliveryConfig
    from processor.delivery.service import run

    s = load()
    health = _health(s)
    found = load_configuration(s.config_dir)
    config = DeliveryConfig(
        kafka=s.client,
        naming=s.naming,
        channels=found.channels,
        templates_dir=found.templates,
        secrets=secrets(found, os.environ),
        instance_id=s.instance_id,
        concurrency=s.delivery_concurrency,
        shutdown_seconds=s.shutdown_seconds,
        at=_armed(s),
        beat=health.beat,
        ready=health.ready,
        progress=health.progress,
    )
    _serve("deliver", s, health, lambda stop, registry: run(config, stop, registry), found.ladders)


def journal() -> None:
    """Write the delivery events to PostgreSQL, where people can ask for them."""
    from relay.journal.config import JournalConfig
    from relay.journal.service import run

    s = load()
    health = _health(s)
    config = JournalConfig(
        kafka=s.client,
        database_url=s.database,
        naming=s.naming,
        instance_id=s.instance_id,
        retention_days=s.journal_retention_days,
        shutdown_seconds=s.shutdown_seconds,
        at=_armed(s),
        beat=health.beat,
        ready=health.ready,
        progress=health.progress,
    )
    _serve("journal", s, health, lambda stop, registry: run(config, stop, registry))


def api() -> None:
    """Serve the HTTP API."""
    from relay.api.config import ApiConfig
    from relay.api.service import run

    s = load()
    health = _health(s)
    config = ApiConfig(
        database_url=s.database,
        kafka=s.client,
        naming=s.naming,
        host=s.api_host,
        port=s.api_port,
        token=s.api_token.get_secret_value() if s.api_token else None,
        shutdown_seconds=s.shutdown_seconds,
        beat=health.beat,
        ready=health.ready,
    )
    _serve("api", s, health, lambda stop, registry: run(config, stop, registry))


def audit(
    once: Annotated[
        bool, typer.Option("--once/--continuous", help="One run with a report, or rounds for ever.")
    ] = True,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="RFC 3339 time to audit from; else all that is kept.")
    ] = None,
    settle: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Seconds that a request may wait for relay and processor; 60, or 3600."
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Seconds that a step may be late, beyond a claim's own.")
    ] = 60,
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Seconds between two rounds.")] = 10,
    metrics: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Address of a journal's metrics, to be held against the recount; repeatable."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check what was promised against outbox, delivery-events and journal; exits 1 if a promise was not kept."""
    from deploy.auditing import Wanted, audit_for_ever, audit_once

    wanted = Wanted(since, settle, tolerance, interval, tuple(metrics or ()))
    if once:
        raise typer.Exit(audit_once(load(), wanted, as_json=json))
    audit_for_ever(load(), wanted)


SERVICE_COMMANDS = (outbox, delays, processor, deliver, journal, api)
