"""A business service as a process of its own: one row per transaction, so many a second, and when each was committed.

`python -m tests.benchmarks.outbox_writer SETTINGS` writes the wall clock's nanoseconds at which each commit was
answered, by number, to the file `times`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from tests.benchmarks.outbox_rows import KIND

CONNECTIONS = 4
NOTIFY = "SELECT rung.notify(%s, %s, %s::jsonb, %s)"
PLAIN = "INSERT INTO bare_outbox (key, type, payload) VALUES (%s, %s, %s::jsonb)"
PAD = "x" * 60


def main() -> None:
    """Write, and say when."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    total = round(settings["seconds"] * settings["per_second"])
    times = [0] * total
    started = time.monotonic() + 0.5
    threads = [threading.Thread(target=_write, args=(settings, times, started, first)) for first in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    Path(settings["times"]).write_text(json.dumps(times))


def _write(settings: dict[str, Any], times: list[int], started: float, first: int) -> None:
    with psycopg.connect(settings["database_url"], autocommit=True) as connection:
        for number in range(first, len(times), CONNECTIONS):
            time.sleep(max(0.0, started + number / settings["per_second"] - time.monotonic()))
            connection.execute(*_statement(settings["ours"], number))
            times[number] = time.time_ns()


def _statement(ours: bool, number: int) -> tuple[Any, tuple[str, ...]]:
    recipient, key = f"recipient-{number % 1000:06}", f"{number:09}"
    data = {"text": PAD}
    if ours:
        return NOTIFY, (recipient, KIND, json.dumps(data), key)
    payload = {
        "notification_id": "00000000-0000-8000-8000-000000000000",
        "recipient": recipient,
        "kind": KIND,
        "dedup_key": key,
        "data": data,
    }
    return PLAIN, (recipient, "rung.notify", json.dumps(payload))


if __name__ == "__main__":
    main()
