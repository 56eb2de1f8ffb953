"""What clients get out of the slow provider without a worker around them, as a process; prints calls per second.

`raw` writes a ready request to a socket and waits for the answer: what the provider itself can do. `aiohttp` posts
the same body with the worker's client library: what an adapter that does nothing else could do.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import aiohttp

BODY = json.dumps({"key": "k" * 38, "recipient": "recipient-0000001", "text": "x" * 300}).encode()
_REQUEST = (
    b"POST /push HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
)


async def _raw(port: int, until: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    while time.monotonic() < until:
        writer.write(_REQUEST)
        await reader.readuntil(b'{"id":"m"}')
        count += 1
    writer.close()
    return count


async def _posting(session: aiohttp.ClientSession, url: str, until: float) -> int:
    count = 0
    while time.monotonic() < until:
        async with session.post(url, data=BODY, headers={"Idempotency-Key": "k"}) as response:
            await response.read()
        count += 1
    return count


async def measure(kind: str, port: int, slots: int, seconds: float) -> float:
    """Calls per second with so many slots."""
    until = time.monotonic() + seconds
    if kind == "raw":
        return sum(await asyncio.gather(*(_raw(port, until) for _ in range(slots)))) / seconds
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=slots)) as session:
        calls = (_posting(session, f"http://127.0.0.1:{port}/push", until) for _ in range(slots))
        return sum(await asyncio.gather(*calls)) / seconds


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(asyncio.run(measure(given["kind"], given["port"], given["slots"], given["seconds"]))))
