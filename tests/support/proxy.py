"""A TCP proxy that cuts connections on purpose: between a service and its Kafka or PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Self, TypeVar

from deploy.local.ports import HOST, free_port

CHUNK = 64 * 1024
CALL_SECONDS = 10.0
T = TypeVar("T")


class Proxy:
    """Forwards a port of its own to another one, from a thread of its own."""

    def __init__(self, target: int, port: int | None = None) -> None:
        """`target` is the port on this machine that is forwarded to; `port` is chosen free if None."""
        self.target = target
        self.port = port or free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._server: asyncio.Server | None = None
        self._open: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._tear: tuple[int, asyncio.Event] | None = None
        self._open_for_new = True
        self._flows = asyncio.Event()
        self._flows.set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> int:
        """Reset every connection, on both sides; returns how many there were. New ones are served at once."""
        return self._run(self._cut())

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Let nothing through, in either direction, while connections stay as they are: a network that leads nowhere.
        Afterwards what was held back arrives."""
        self._loop.call_soon_threadsafe(self._flows.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._flows.set)

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Reset every connection, and each new one at once: a server that is down."""
        self._open_for_new = False
        try:
            self.cut()
            yield
        finally:
            self._open_for_new = True

    def tear(self, at_least: int, timeout: float) -> None:
        """Of the next piece of at least so many bytes that a client sends, let half through, then reset all.

        Raises:
            TimeoutError: no client sent that much at once in time.
        """
        self._run(self._torn(at_least, timeout), timeout + CALL_SECONDS)

    def _run(self, coroutine: Coroutine[Any, Any, T], seconds: float = CALL_SECONDS) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(seconds)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _cut(self) -> int:
        pairs = list(self._open)
        for pair in pairs:
            for writer in pair:
                writer.transport.abort()
        return len(pairs)

    async def _torn(self, at_least: int, seconds: float) -> None:
        done = asyncio.Event()
        self._tear = (at_least, done)
        try:
            async with asyncio.timeout(seconds):
                await done.wait()
        finally:
            self._tear = None
        await self._cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if not self._open_for_new:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            there_reader, there = await asyncio.open_connection(HOST, self.target)
        except OSError:
            writer.transport.abort()
            self._tasks.discard(task)
            return
        pair = (writer, there)
        self._open.add(pair)
        try:
            await asyncio.gather(self._pump(reader, there, torn=True), self._pump(there_reader, writer, torn=False))
        except asyncio.CancelledError:
            pass
        finally:
            self._open.discard(pair)
            self._tasks.discard(task)
            for end in pair:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, torn: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._flows.wait()
                if torn and self._tear is not None and len(data) >= self._tear[0]:
                    writer.write(data[: len(data) // 2])
                    self._tear[1].set()
                    self._tear = None
                    return
                writer.write(data)
                await writer.drain()
        # The other side is told that no more comes; a client that is gone ends its server's connection too.
        writer.transport.abort()
