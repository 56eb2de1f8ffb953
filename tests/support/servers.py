"""The Kafka and PostgreSQL that a test run works on: embedded, in containers, or given."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from deploy.local import ports
from deploy.local.kafka import EmbeddedKafka, broker_settings
from deploy.local.postgres import EmbeddedPostgres
from tests.support.eventually import eventually

KAFKA_IMAGE = "apache/kafka:4.2.0"
POSTGRES_IMAGE = "postgres:18"


@contextlib.contextmanager
def kafka_server(choice: str, folder: Path) -> Iterator[str]:
    """Yield the bootstrap servers for `embedded`, `docker` or `HOST:PORT`, and stop what was started."""
    if choice == "embedded":
        with EmbeddedKafka(folder) as broker:
            yield broker.bootstrap_servers
    elif choice == "docker":
        with _kafka_container() as bootstrap:
            yield bootstrap
    else:
        yield choice


@contextlib.contextmanager
def postgres_server(choice: str, folder: Path) -> Iterator[str]:
    """Yield a superuser's address for `embedded`, `docker` or a URL, and stop what was started."""
    if choice == "embedded":
        with EmbeddedPostgres(folder, fsync=False) as server:
            yield server.url("postgres")
    elif choice == "docker":
        from testcontainers.community.postgres import PostgresContainer

        options = "-c max_connections=200 -c fsync=off -c full_page_writes=off"
        with PostgresContainer(POSTGRES_IMAGE, driver=None).with_command(options) as container:
            yield container.get_connection_url()
    else:
        yield choice


@contextlib.contextmanager
def _kafka_container() -> Iterator[str]:
    from confluent_kafka.admin import AdminClient
    from testcontainers.core.container import DockerContainer

    # The port is chosen here, because the broker has to tell clients the one that they see.
    port, controller_port = ports.free_port(), 9093
    container = DockerContainer(KAFKA_IMAGE).with_bind_ports(port, port)
    for name, value in broker_settings("0.0.0.0", port, controller_port).items():
        container = container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", value)
    with container:
        client = AdminClient({"bootstrap.servers": f"{ports.HOST}:{port}"})
        eventually(lambda: client.list_topics(timeout=1).brokers, timeout=90, describe="Kafka in its container")
        yield f"{ports.HOST}:{port}"
