"""Both engines on a Kafka that asks who is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import ports
from deploy.local.kafka import EmbeddedKafka
from schemas.topics import DELIVERY_EVENTS, NOTIFICATIONS
from tests.support.engine import KafkaUnderTest, notify

USER, PASSWORD = "rung", "secret of the test"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SecuredKafka(EmbeddedKafka):
    """One with a second listener, that lets one user in."""

    secured_port = 0

    @property
    def secured(self) -> str:
        """The address of that listener."""
        return f"{ports.HOST}:{self.secured_port}"

    def _configure(self, data: Path, controller_port: int) -> Path:
        path = super()._configure(data, controller_port)
        self.secured_port = self.secured_port or ports.free_port(exclude=frozenset({self.port, controller_port}))
        lines = path.read_text("utf-8").splitlines()
        for number, line in enumerate(lines):
            name = line.partition("=")[0]
            if name in ("listeners", "advertised.listeners"):
                lines[number] += f",SECURED://{self.secured}"
            elif name == "listener.security.protocol.map":
                lines[number] += ",SECURED:SASL_PLAINTEXT"
        lines += [
            "listener.name.secured.sasl.enabled.mechanisms=PLAIN",
            f'listener.name.secured.plain.sasl.jaas.config={LOGIN} required user_{USER}="{PASSWORD}";',
        ]
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """The broker."""
    with SecuredKafka(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


def settings(broker: SecuredKafka, password: str) -> dict[str, str]:
    """What RUNG_KAFKA and RUNG_KAFKA_CONFIG would say."""
    return {
        "bootstrap.servers": broker.secured,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": password,
    }


@pytest.mark.parametrize("engine", ["quix", "faust"])
def test_who_has_the_password_processes(secured: SecuredKafka, topic_prefix: str, tmp_path: Path, engine: str) -> None:
    """The group, the records, the changelog: every connection of the process says who it is."""
    options = {"engine": engine, "kafka": settings(secured, PASSWORD)}
    under_test = KafkaUnderTest(secured.bootstrap_servers, topic_prefix, tmp_path, **options)
    try:
        under_test.start()
        under_test.send_records(NOTIFICATIONS, [(notify("ada", f"k{i}"), f"n{i}") for i in range(10)])
        assert len(under_test.written(DELIVERY_EVENTS, 10)) == 10
        assert under_test.stop() == 0, under_test.log
    finally:
        under_test.close()
