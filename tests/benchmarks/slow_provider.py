"""A webhook provider that takes its time and costs next to nothing: as a process, `python -m …slow_provider JSON`.

It answers every POST with 200 after the delay, and GET with what it has seen: how many calls (`/count`), or with it the
keys in the order of their arrival, when each, the first and the last came (seconds, monotonic: one clock for all
processes of a machine), and the most calls that were under way. It reads just enough of HTTP/1.1 for a client that
sends one request at a time on a kept connection.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_KEY = re.compile(rb"idempotency-key: *([^\r]+)", re.IGNORECASE)
_YES = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"id":"m"}'


class Seen:
    """What came in."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.keys: list[str] = []
        self.times: list[float] = []
        self.first = self.last = 0.0
        self.open = self.most = 0

    def report(self, whole: bool) -> bytes:
        """As an answer. Whole, it takes long to write, so it is for the end."""
        report: dict[str, object] = {"count": len(self.keys)}
        if whole:
            report |= {"keys": self.keys, "times": self.times}
            report |= {"first": self.first, "last": self.last, "most": self.most}
        body = json.dumps(report).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._buffer = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take what is whole."""
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        if head.startswith(b"GET"):
            self._buffer = b""
            self._transport.write(self._seen.report(whole=not head.startswith(b"GET /count ")))
            return
        length = _LENGTH.search(head)
        if length is None or len(rest) < int(length[1]):
            return
        self._buffer = b""
        key, seen, now = _KEY.search(head), self._seen, time.monotonic()
        seen.keys.append(key[1].decode() if key else "")
        seen.times.append(now)
        seen.first, seen.last = seen.first or now, now
        seen.open += 1
        seen.most = max(seen.most, seen.open)
        asyncio.get_running_loop().call_later(seen.delay, self._answer)

    def _answer(self) -> None:
        self._seen.open -= 1
        if not self._transport.is_closing():
            self._transport.write(_YES)


async def serve(port: int, delay: float) -> None:
    """Serve until SIGTERM."""
    loop, stop, seen = asyncio.get_running_loop(), asyncio.Event(), Seen(delay)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: Connection(seen), "127.0.0.1", port, backlog=1_024)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(serve(given["port"], given["delay"]))
