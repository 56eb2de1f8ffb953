"""A business service of the end-to-end rows, as a process: notifications, each committed by itself, so many a second.

Its JSON argument says how many and how fast (0: as fast as it can, 500 to a transaction); it writes when each commit
was answered (seconds, monotonic), by dedup key, to the file `times`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from tests.benchmarks.workload import KIND, recipient_name

CONNECTIONS = 4
DATA = json.dumps({"amount": "12.50 EUR", "text": "x" * 60})
NOTIFY = "SELECT rung.notify(%s, %s, %s::jsonb, %s)"
BULK = 500


def _one_by_one(given: dict[str, Any], times: dict[str, float], begin: float, first: int) -> None:
    with psycopg.connect(given["database_url"], autocommit=True) as connection:
        for number in range(first, given["count"], CONNECTIONS):
            time.sleep(max(0.0, begin + number / given["per_second"] - time.monotonic()))
            key = f"e{number}"
            row = connection.execute(NOTIFY, (recipient_name(number % given["recipients"]), KIND, DATA, key)).fetchone()
            assert row is not None
            times[f"{row[0]}:0"] = time.monotonic()


def _in_bulk(given: dict[str, Any], times: dict[str, float]) -> None:
    with psycopg.connect(given["database_url"]) as connection:
        for start in range(0, given["count"], BULK):
            keys = []
            for number in range(start, min(start + BULK, given["count"])):
                who = recipient_name(number % given["recipients"])
                row = connection.execute(NOTIFY, (who, KIND, DATA, f"s{number}")).fetchone()
                assert row is not None
                keys.append(f"{row[0]}:0")
            connection.commit()
            times.update(dict.fromkeys(keys, time.monotonic()))


def main() -> None:
    """Ask for notifications."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    times: dict[str, float] = {}
    if given["per_second"] == 0:
        _in_bulk(given, times)
    else:
        begin = time.monotonic() + 0.5
        threads = [
            threading.Thread(target=_one_by_one, args=(given, times, begin, first)) for first in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    Path(given["times"]).write_text(json.dumps(times))


if __name__ == "__main__":
    main()
