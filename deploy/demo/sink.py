"""What both sinks share: the record file, the first line of output, and the end by a signal."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


class Recorder:
    """Appends each call as one JSON line; `accepted` keys are remembered, as a provider does that honours keys."""

    def __init__(self, path: Path | None) -> None:
        # Unbuffered, so that a line is in the file before the answer to its call leaves.
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.accepted: dict[str, str] = {}
        self.in_flight = 0

    def write(self, call: dict[str, Any]) -> None:
        """Record one call."""
        if self._file is not None:
            os.write(self._file, json.dumps(call, ensure_ascii=False).encode(errors="replace") + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)


def arguments(description: str) -> argparse.Namespace:
    """The command line of a sink: `--host --port --record FILE --script FILE`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one; the first line of output names it")
    parser.add_argument("--record", type=Path, help="append one JSON line per call to this file")
    parser.add_argument("--script", type=Path, help="how to answer; read again whenever it changes")
    return parser.parse_args()


def announce(host: str, port: int) -> None:
    """The first line of output: where the sink listens."""
    sys.stdout.write(json.dumps({"host": host, "port": port, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()


async def until_told_to_stop() -> None:
    """Wait for SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()


def now_ms() -> int:
    """The wall clock, milliseconds since the epoch."""
    return round(time.time() * 1000)
