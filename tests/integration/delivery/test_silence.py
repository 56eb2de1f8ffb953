"""A delivery worker that has lost Kafka, while its provider can still be reached."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.ports import HOST, free_port
from schemas.topics import Naming
from tests.support.chaos.servers import ProxiedKafka
from tests.support.delivery import Stage, delivery
from tests.support.eventually import eventually
from tests.support.proxy import Proxy
from tests.support.sinks import Sink

ANSWER_SECONDS = 4.0
CHANNELS = (
    '[channels.push]\nproviders = [{{ adapter = "webhook", name = "push", url = "{url}/push", timeout = "5s" }}]\n'
)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """The worker's only way to Kafka."""
    with Proxy(free_port()) as running:
        yield running


@pytest.fixture
def stage(proxy: Proxy, sink: Sink, tmp_path: Path) -> Iterator[Stage]:
    """A stage with a broker of its own, which tells those who come through the proxy to stay there."""
    (tmp_path / "config").mkdir()
    with ExitStack() as stack:
        kafka = stack.enter_context(ProxiedKafka(tmp_path, proxy.target, proxy.port))
        stage = Stage(kafka.bootstrap_servers, Naming(""), tmp_path / "config", CHANNELS.format(url=sink.url))
        stack.callback(stage.close)
        yield stage


@pytest.mark.parametrize("connections", ["silent", "refused"])
def test_a_worker_that_does_not_hear_kafka_calls_nobody(
    stage: Stage, proxy: Proxy, sink: Sink, connections: str
) -> None:
    """A claim waits for its lane, Kafka is out of reach and the person acts: the claim's turn comes, and it is not
    called. Once Kafka is heard again, the resolution is, too."""
    first, second = delivery("ada"), delivery("ada")
    answers = [{"delay_ms": round(ANSWER_SECONDS * 1000)}]
    sink.answer({"match": {"notification_id": str(first.notification_id)}, "answers": answers})
    stage.process("one", {"RUNG_KAFKA": f"{HOST}:{proxy.port}"})
    stage.deliver(first, second)
    eventually(lambda: len(sink.calls()) == 1, timeout=60)
    called_at = time.monotonic()
    with proxy.silent() if connections == "silent" else proxy.closed():
        stage.resolve(second)
        eventually(lambda: time.monotonic() - called_at > ANSWER_SECONDS + 3, timeout=30)
        (held,) = stage.events("one", "holding_calls")
        assert held["reason"] == "kafka_silent"
        assert [call["key"] for call in sink.calls()] == [first.key]
    outcomes = {o.key: (o.outcome, o.reason) for o in stage.outcomes(2, timeout=60)}
    assert outcomes == {first.key: ("sent", ""), second.key: ("suppressed", "resolved")}
    assert [call["key"] for call in sink.calls()] == [first.key]
