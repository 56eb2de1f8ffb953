"""The whole system as processes on this machine: the servers, what they need before the first service, the services."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from deploy.configuration import Configuration, load_configuration, secrets
from deploy.errors import CommandError
from deploy.ladder_guard import guard
from deploy.local.errors import AbortedError
from deploy.local.kafka import EmbeddedKafka
from deploy.local.ports import free_port
from deploy.local.postgres import EmbeddedPostgres
from deploy.local.stack import Stack
from deploy.local.supervisor import Child, Exit, Restart, Supervisor
from deploy.readiness import Readiness, refusal
from deploy.running import Running
from deploy.settings import Settings
from deploy.topics import ensure_topics
from relay.outbox.kinds import publish_kinds
from relay.outbox.migrations import MigrationError, migrate

SERVICES = ("outbox", "delays", "processor", "deliver", "journal", "api")
EMBEDDED_PARTITIONS = 4
"""One broker and two cores serve few partitions faster than many; a cluster's number comes from the settings."""
READY_SECONDS = 60.0
WATCH_SECONDS = 0.05
Progress = Callable[[str], None]
_Server = TypeVar("_Server", Stack, EmbeddedKafka, EmbeddedPostgres)


class ServiceError(CommandError, RuntimeError):
    """A service did not come up; the message names its log."""


class StartInterrupted(Exception):  # noqa: N818 - it is no error
    """The start was told to stop; nothing is left running."""


@dataclass(frozen=True)
class Replicas:
    """How many processes each service runs as; one unless named."""

    counts: Mapping[str, int]

    def names(self) -> list[tuple[str, str]]:
        """Pairs of process name and service."""
        pairs = []
        for service in SERVICES:
            count = self.counts.get(service, 1)
            pairs += [(service if count == 1 else f"{service}-{n}", service) for n in range(1, count + 1)]
        return pairs


class LocalSystem:
    """Starts everything in order and stops it in reverse; servers that the settings name are used, not started."""

    def __init__(
        self,
        settings: Settings,
        state_dir: Path,
        *,
        progress: Progress = lambda _: None,
        replicas: Replicas | None = None,
        fsync: bool = True,
        environment: Mapping[str, str] | None = None,
        force: bool = False,
        stop: threading.Event | None = None,
    ) -> None:
        """Describe the system; nothing runs before `start`. `environment` is added to that of every service; `force`
        drops also kinds that open notifications use; `stop`, set by a signal, gives a start up."""
        self._settings = settings
        self._folder = state_dir.expanduser().absolute()
        self._progress = progress
        self._replicas = replicas or Replicas({})
        self._fsync = fsync
        self._force = force
        self._stop = stop or threading.Event()
        self._environment = dict(environment or {})
        self._embedded: list[Stack | EmbeddedKafka | EmbeddedPostgres] = []
        self.supervisor = Supervisor()
        self.running: Running | None = None
        self.configuration: Configuration | None = None

    @property
    def logs(self) -> Path:
        """The folder of the services' logs, one file each."""
        return self._folder / "logs"

    @property
    def messages(self) -> Path:
        """What the console adapter printed, one JSON line for each message; apart, for no log may hold a message."""
        return self._folder / "messages.log"

    def start(self) -> Running:
        """Start servers, prepare them, start services; returns when all answer.

        Raises:
            StackError: a server did not start. ServiceError: a service did not. ConfigurationError: the
                configuration directory has faults. RefusedError: starting would lose data.
                StartInterrupted: the event was set.
            In each case everything started is stopped again.
        """
        self.configuration = configuration = load_configuration(self._settings.config_dir)
        secrets(configuration, {**os.environ, **self._environment})
        self.logs.mkdir(parents=True, exist_ok=True)
        try:
            kafka, database = self._start_servers()
            self._go_on()
            self._progress("preparing topics and tables")
            given = "partitions" in self._settings.model_fields_set or bool(self._settings.kafka)
            partitions = self._settings.partitions if given else EMBEDDED_PARTITIONS
            ensure_topics(
                {**self._settings.kafka_config, "bootstrap.servers": kafka},
                self._settings.naming,
                partitions=partitions,
                replication_factor=self._settings.replication_factor,
            )
            self._go_on()
            _migrate(database)
            if not self._force:
                guard(database, configuration)
            publish_kinds(database, configuration.ladders)
            self._go_on()
            self.running = self._start_services(kafka, database, partitions)
        except BaseException:
            self.stop()
            raise
        return self.running

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise StartInterrupted

    def _start_servers(self) -> tuple[str, str]:
        """Start what the settings do not name; both together where they name neither."""
        kafka, database = self._settings.kafka, self._settings.database_url.get_secret_value()
        if not kafka and not database:
            self._progress("starting Kafka and PostgreSQL")
            both = self._started(Stack(self._folder, fsync=self._fsync))
            return both.kafka.bootstrap_servers, both.postgres.url()
        if not kafka:
            self._progress("starting Kafka")
            kafka = self._started(EmbeddedKafka(self._folder)).bootstrap_servers
        if not database:
            self._progress("starting PostgreSQL")
            database = self._started(EmbeddedPostgres(self._folder, fsync=self._fsync)).url()
        return kafka, database

    def _started(self, server: _Server) -> _Server:
        self._go_on()
        with self._aborting(server):
            server.start()
        self._embedded.append(server)
        return server

    @contextmanager
    def _aborting(self, server: _Server) -> Iterator[None]:
        """Give the start of a server up when the event is set, for it waits in this thread."""
        started = threading.Event()

        def watch() -> None:
            # Again and again: a server that is about to start forgets what it was told before.
            while not started.wait(WATCH_SECONDS):
                if self._stop.is_set():
                    server.abort()

        watcher = threading.Thread(target=watch, name="watch-start", daemon=True)
        watcher.start()
        try:
            yield
        except AbortedError:
            self._go_on()
            raise
        finally:
            started.set()
            watcher.join()

    def _start_services(self, kafka: str, database: str, partitions: int) -> Running:
        ports: dict[str, int] = {}
        for name in ["api-http", *(name for name, _ in self._replicas.names())]:
            ports[name] = free_port(frozenset(ports.values()))
        api_port = self._settings.api_port if "api_port" in self._settings.model_fields_set else ports["api-http"]
        common = {
            "RUNG_KAFKA": kafka,
            "RUNG_DATABASE_URL": database,
            "RUNG_CONFIG_DIR": str(self._settings.config_dir),
            "RUNG_PARTITIONS": str(partitions),
            "RUNG_API_PORT": str(api_port),
            **self._environment,
        }
        for name, service in self._replicas.names():
            child = Child(
                name=name,
                command=[sys.executable, "-m", "deploy.cli", service],
                log=self.logs / f"{name}.log",
                output=self.messages if service == "deliver" else None,
                env={
                    **common,
                    "RUNG_METRICS_PORT": str(ports[name]),
                    "RUNG_INSTANCE_ID": name,
                    "RUNG_STATE_DIR": str(self._folder / "state" / name),
                },
                restart=Restart(),
            )
            self.supervisor.add(child)
        self.messages.touch(mode=0o600)  # it holds addresses and texts
        self._progress("starting services")
        self.supervisor.start_all()
        names = [name for name, _ in self._replicas.names()]
        running = Running(
            kafka=kafka,
            database_url=database,
            api=f"http://{self._settings.api_host}:{api_port}",
            metrics={name: f"http://127.0.0.1:{ports[name]}/metrics" for name in names},
            config_dir=str(self._settings.config_dir),
            state_dir=str(self._folder),
            topic_prefix=self._settings.topic_prefix,
            pid=os.getpid(),
        )
        self._wait_until_ready(running)
        return running

    def _wait_until_ready(self, running: Running) -> None:
        deadline = time.monotonic() + READY_SECONDS
        readiness = Readiness(running.metrics, running.api)
        while missing := readiness.missing():
            self._go_on()
            for ended in self.supervisor.poll():
                log = self.logs / f"{ended.name}.log"
                raise ServiceError(refusal(log) or f"{ended.name} ended with {ended.reason}: see {log}")
            if time.monotonic() > deadline:
                names = ", ".join(missing)
                raise ServiceError(f"not ready within {READY_SECONDS:.0f} s: {names}; see the logs in {self.logs}")
            self._stop.wait(WATCH_SECONDS)

    def failures(self) -> list[str]:
        """What an embedded server that ended by itself says of its end; the system cannot go on without it."""
        found: list[str] = []
        for server in self._embedded:
            found += server.failures() if isinstance(server, Stack) else [f for f in [server.failure()] if f]
        return found

    def poll(self) -> list[Exit]:
        """Services that ended without being asked to since the last call; each is started again."""
        return self.supervisor.poll()

    def stop(self) -> list[str]:
        """Stop the services, then the servers; returns the names of what had to be killed."""
        killed = self.supervisor.stop_all(self._settings.shutdown_seconds + 5)
        while self._embedded:
            self._embedded.pop().stop()
        return killed

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _migrate(database: str) -> None:
    try:
        migrate(database)
    except MigrationError as error:
        raise ServiceError(str(error)) from None
