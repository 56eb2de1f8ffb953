"""A consumer that cannot go on: the journal makes another one, once, and not again and again."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from prometheus_client import CollectorRegistry

from relay.journal import service
from relay.journal.config import JournalConfig
from relay.journal.metrics import JournalMetrics
from relay.journal.service import Journal


class Fault:
    """What the client hands out in place of a record."""

    def error(self) -> KafkaError:
        """By its code alone: the client does not call it fatal."""
        return KafkaError(KafkaError._FATAL, "Static consumer fenced by other consumer with same group.instance.id")


class Client:
    """A consumer that was fenced."""

    made = 0

    def __init__(self, *_: object, **__: object) -> None:
        type(self).made += 1

    def subscribe(self, *_: object, **__: object) -> None:
        """Nothing comes of it."""

    def consume(self, *_: object) -> list[Fault]:
        """The end."""
        return [Fault()]

    def close(self) -> None:
        """Leave."""


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A journal whose consumers are fenced at once, and whose upkeep is not due."""
    monkeypatch.setattr(service, "Consumer", Client)
    monkeypatch.setattr(Client, "made", 0)
    config = JournalConfig(kafka={"bootstrap.servers": "127.0.0.1:9"}, database_url="postgresql://nowhere")
    made: Any = Journal(config, threading.Event(), JournalMetrics(CollectorRegistry()))
    made._next_upkeep = made._next_look = float("inf")
    return made


def test_a_first_fence_ends_the_session_and_not_the_service(journal: Any) -> None:
    """A broker that was frozen answers two requests to join, and the member is its own rival."""
    journal._session()
    assert Client.made == 1


def test_a_second_fence_ends_the_service(journal: Any) -> None:
    """Somebody else runs with the same instance id."""
    journal._session()
    with pytest.raises(KafkaException, match="fenced"):
        journal._session()
    assert Client.made == 2


def test_a_session_that_hears_nothing_of_its_group_gives_way(journal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service goes on with another consumer, rather than wait for an answer that may never come."""
    monkeypatch.setattr(Client, "consume", lambda *_: [])
    monkeypatch.setattr(service, "JOIN_SECONDS", 0.01)
    journal._session()
    journal._session()
    assert Client.made == 2
