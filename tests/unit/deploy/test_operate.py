"""The commands of the services: what is set from outside arrives where it has an effect."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import processor.delivery.service
import processor.engine.service
from deploy import operate

Work = Callable[[threading.Event, CollectorRegistry], None]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings of services that are started and do nothing."""
    found: list[Any] = []

    def serve(name: str, settings: object, health: object, work: Work, kinds: object = None) -> None:
        work(threading.Event(), CollectorRegistry())

    monkeypatch.setattr(operate, "_serve", serve)
    for service in (processor.engine.service, processor.delivery.service):
        monkeypatch.setattr(service, "run", lambda config, stop, registry: found.append(config))
    monkeypatch.setenv("RUNG_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("RUNG_SHUTDOWN_SECONDS", "7")
    return found


def test_the_processors_memory_is_set(monkeypatch: pytest.MonkeyPatch, given: list[Any]) -> None:
    """Its cache is what bounds its memory."""
    monkeypatch.setenv("RUNG_STATE_MEMORY_MIB", "512")
    operate.processor()
    assert (given[0].memory_mib, given[0].shutdown_seconds) == (512, 7.0)


def test_the_workers_calls_are_set(monkeypatch: pytest.MonkeyPatch, given: list[Any]) -> None:
    """However many its providers would take together."""
    monkeypatch.setenv("RUNG_DELIVERY_CONCURRENCY", "128")
    operate.deliver()
    assert (given[0].concurrency, given[0].shutdown_seconds) == (128, 7.0)
