"""How often a connection waits for its server: counted in the protocol itself, so the same on every machine."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg.pq import Trace

# A client waits after each of these; what else it sends goes out with one of them.
_ASKED = re.compile(r"F\t\d+\t(Query|Sync|CopyDone)\b")


@contextlib.contextmanager
def counted(connection: psycopg.Connection[Any]) -> Iterator[Counter[str]]:
    """Round trips of a connection by the message that asked, filled in when the block is left; `total()` is all."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryFile("w+") as lines:
        connection.pgconn.trace(lines.fileno())
        connection.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        try:
            yield found
        finally:
            connection.pgconn.untrace()
            lines.seek(0)
            for line in lines:
                # A query's text may have lines of its own.
                if asked := _ASKED.match(line):
                    found[asked[1]] += 1
