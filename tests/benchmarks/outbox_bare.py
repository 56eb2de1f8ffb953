"""The outbox relay's baseline, a process of its own: SELECT by id, produce, flush per 2,000 rows, and no bookkeeping.

`python -m tests.benchmarks.outbox_bare SETTINGS`. It writes the same records with the same producer settings. It keeps
no position over a restart, checks nothing, cannot run twice, and loses the row that commits late.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import psycopg
from confluent_kafka import Producer

from deploy.signals import stop_on_signals
from relay.outbox.publisher import SETTINGS

ROWS = 2_000
QUERY = "SELECT id, event_id::text, type, key, payload::text FROM bare_outbox WHERE id > %s ORDER BY id LIMIT %s"
CONSTANT = [
    ("ce_source", b"/rung/outbox"),
    ("ce_time", b"2026-12-01T00:00:00.000Z"),
    ("ce_specversion", b"1.0"),
    ("content-type", b"application/json"),
]


def main() -> None:
    """Publish until SIGTERM."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    stop = threading.Event()
    stop_on_signals(stop)
    producer = Producer({"bootstrap.servers": settings["kafka"], **SETTINGS})
    topic, poll_seconds = settings["topic"], settings["poll_seconds"]
    with psycopg.connect(settings["database_url"], autocommit=True) as connection:
        last = 0
        while not stop.is_set():
            rows = connection.execute(QUERY, (last, ROWS)).fetchall()
            for _, event_id, kind, key, payload in rows:
                headers = [("ce_id", event_id.encode()), ("ce_type", kind.encode()), *CONSTANT]
                producer.produce(topic, payload.encode(), key.encode(), headers=headers)
            if rows:
                producer.flush()
                last = rows[-1][0]
            if len(rows) < ROWS:
                stop.wait(poll_seconds)


if __name__ == "__main__":
    main()
