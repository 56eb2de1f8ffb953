"""Delivery events as the processor publishes them, and a journal that runs as a process or a thread of the test."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from prometheus_client import CollectorRegistry

from relay.journal.config import JournalConfig
from relay.journal.service import run
from schemas.codec import encode
from schemas.envelope import Envelope, to_headers
from schemas.records import DeliveryEvent, EventType

Wire = tuple[str, bytes, Mapping[str, bytes]]


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


def event(recipient: str = "ada", **fields: Any) -> DeliveryEvent:
    """An event with what every event has; `fields` say the rest."""
    given: dict[str, Any] = {
        "notification_id": uuid.uuid5(UUID(int=0), recipient),
        "kind": "payment",
        "dedup_key": "invoice-7",
        "reason": "accepted",
        "at": now_ms(),
    }
    return DeliveryEvent(recipient=recipient, **given | fields)


def on_wire(value: DeliveryEvent, kind: EventType = EventType.ACCEPTED, event_id: str | None = None) -> Wire:
    """An event as key, value and headers, as `tests.support.kafka.produce` takes them."""
    envelope = Envelope(event_id or str(uuid.uuid4()), kind.value, "/rung/processor", value.at)
    return value.recipient, encode(value), dict(to_headers(envelope))


@contextlib.contextmanager
def running(config: JournalConfig, registry: CollectorRegistry | None = None) -> Iterator[CollectorRegistry]:
    """A journal in a thread; it has ended when the block is left, and what it raised is raised there."""
    stop, failed = threading.Event(), []
    registry = registry or CollectorRegistry()

    def target() -> None:
        try:
            run(config, stop, registry)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=target, name="journal")
    thread.start()
    try:
        yield registry
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive(), "the journal did not stop"
        if failed:
            raise failed[0]


def start_process(kafka: str, database_url: str, prefix: str, **fields: Any) -> subprocess.Popen[bytes]:
    """A journal as a process of its own; the test ends it. `fields` are those of `JournalConfig`."""
    given = {"kafka": {"bootstrap.servers": kafka}, "database_url": database_url, **fields}
    command = [sys.executable, "-m", "tests.support.journal_process", prefix, json.dumps(given)]
    return subprocess.Popen(command)
