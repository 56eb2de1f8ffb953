"""Debezium's outbox event router on the outbox of a database, in a standalone worker of Kafka Connect."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import psycopg

from deploy.local import ports
from deploy.local.kafka import java_program
from schemas.topics import Naming
from tests.benchmarks import debezium_jars
from tests.benchmarks.bench import Bench, Process
from tests.support.eventually import eventually

DEFAULT: Mapping[str, str] = MappingProxyType({})
"""As Debezium and Connect come."""
TUNED: Mapping[str, str] = MappingProxyType(
    {
        # By default a batch that is not full waits half a second for more.
        "poll.interval.ms": "2",
        "max.batch.size": "8192",
        "max.queue.size": "32768",
        "producer.override.linger.ms": "0",
        # As the relay's own producer has them.
        "producer.override.batch.size": str(128 * 1024),
        "producer.override.compression.type": "lz4",
    }
)
"""For the least latency, and for long batches when there is a backlog."""
NAME = "outbox"
SLOT = "debezium"
PUBLICATION = "debezium"
READY_SECONDS = 120.0
_REQUEST_SECONDS = 30.0
# What Connect's own start script gives to Java: its full compiler, and room.
_JVM_OPTIONS = (
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)
_LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c - %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


def use_logical_wal(bench: Bench) -> None:
    """Restart the run's PostgreSQL with what logical decoding needs; everything of the part is then measured on it."""
    with psycopg.connect(bench.stack.postgres.url("postgres"), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET wal_level = logical")
    bench.stack.postgres.restart()


@contextlib.contextmanager
def slot(url: str) -> Iterator[None]:
    """A replication slot and a publication of the outbox in a database: what is committed from now on is kept for
    Debezium until it has read it. The slot is dropped afterwards, for a database that has one cannot be dropped."""
    with psycopg.connect(url, autocommit=True) as connection:
        # The outbox is partitioned; the router is to see one table.
        connection.execute(
            f"CREATE PUBLICATION {PUBLICATION} FOR TABLE rung.outbox "
            "WITH (publish = 'insert', publish_via_partition_root = true)"
        )
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
    try:
        yield
    finally:
        # The server notices a moment later that a reader has gone.
        eventually(lambda: _drop_slot(url), READY_SECONDS, describe="the replication slot is dropped")


def _drop_slot(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (SLOT,))
    return True


class Worker:
    """A worker that runs the one connector."""

    def __init__(self, process: Process, api: str, url: str) -> None:
        self.process = process
        self._api = api
        self._url = url

    def stop(self) -> None:
        """End the connector and leave Java running."""
        self._put("stop")
        eventually(lambda: not self._streams(), READY_SECONDS, describe="Debezium has left its slot")

    def resume(self) -> None:
        """Start the connector again in the same Java."""
        self._put("resume")

    def _streams(self) -> bool:
        with psycopg.connect(self._url) as connection:
            query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
            row = connection.execute(query, (SLOT,)).fetchone()
        return row is not None and bool(row[0])

    def _put(self, action: str) -> None:
        request = urllib.request.Request(f"{self._api}/connectors/{NAME}/{action}", method="PUT")
        try:
            urllib.request.urlopen(request, timeout=_REQUEST_SECONDS).close()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"Connect refuses to {action}: {error.read()[:500]!r}") from error


@contextlib.contextmanager
def connect(bench: Bench, naming: Naming, url: str, options: Mapping[str, str]) -> Iterator[Worker]:
    """Run the outbox of a database into the topics of a prefix, by the slot that it has; ended afterwards. It has only
    just been started: the first record says that it works."""
    # By the database's name: a run has its own.
    folder = bench.folder / f"connect-{urlsplit(url).path.removeprefix('/')}"
    folder.mkdir()
    api = f"http://{ports.HOST}:{ports.free_port()}"
    worker = _worker(bench.kafka, api, folder, debezium_jars.plugins(bench.folder / "plugins"))
    files = [
        _write(folder / "worker.properties", worker),
        _write(folder / "connector.properties", _connector(naming, url) | dict(options)),
    ]
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J, "utf-8")
    command = [str(java_program()), *_JVM_OPTIONS, f"-Dlog4j2.configurationFile={log4j}"]
    command += ["-cp", debezium_jars.worker_class_path(), "org.apache.kafka.connect.cli.ConnectStandalone"]
    with bench.run([*command, *files]) as process:
        yield Worker(process, api, url)


def _worker(kafka: str, api: str, folder: Path, plugins: Path) -> dict[str, str]:
    # The payload is JSON text already, and the key is text: as strings they are written as they are.
    converter = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "bootstrap.servers": kafka,
        "key.converter": converter,
        "value.converter": converter,
        "offset.storage.file.filename": str(folder / "offsets"),
        "listeners": api,
        "plugin.path": str(plugins),
        "plugin.discovery": "service_load",
    }


def _connector(naming: Naming, url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "name": NAME,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": parts.hostname,
        "database.port": parts.port,
        "database.user": parts.username,
        "database.dbname": parts.path.removeprefix("/"),
        "topic.prefix": "debezium",
        "plugin.name": "pgoutput",
        "slot.name": SLOT,
        "publication.name": PUBLICATION,
        "publication.autocreate.mode": "disabled",
        "table.include.list": "rung.outbox",
        # The slot is older than every row: what it keeps is all there is.
        "snapshot.mode": "no_data",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": f"{naming.prefix}${{routedByValue}}",
        # `id`, `aggregateid`, `aggregatetype` and `payload` are what the router looks for by default.
        "transforms.outbox.table.fields.additional.placement": "type:header:ce_type",
    }


def _write(path: Path, values: Mapping[str, Any]) -> str:
    # Properties take JSON's escapes within a value.
    lines = (f"{name}={json.dumps(str(value))[1:-1]}\n" for name, value in values.items())
    path.write_text("".join(lines), "utf-8")
    return str(path)
