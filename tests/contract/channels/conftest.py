"""Each adapter with a real server behind it, under one interface."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from deploy.local.ports import free_port
from processor.delivery.channels.build import build_adapter
from processor.delivery.channels.port import Adapter, Call
from processor.delivery.channels_config import parse_channels
from processor.delivery.templates import Message
from tests.support.sinks import Sink, running_sink

TIMEOUT = "700ms"
Kind = Literal["smtp", "webhook", "recipient"]
SECRETS = {"KEY": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "TOKEN": "t0ken"}


@dataclass
class Provider:
    """A server, and how to make the adapter that calls it."""

    kind: Kind
    sink: Sink
    before: int = 0
    adapters: list[Adapter] = field(default_factory=list)

    @property
    def address(self) -> str:
        """An address of a person on this channel."""
        return {"smtp": "ada@example.test", "webhook": "token-ada", "recipient": f"{self.sink.url}/hook"}[self.kind]

    def adapter(self, port: int | None = None, **fields: Any) -> Adapter:
        """A new adapter; `port` sends it elsewhere, and `fields` are further fields of the provider."""
        at = port or self.sink.port
        given: dict[str, Any] = {"timeout": f'"{TIMEOUT}"'}
        if self.kind == "smtp":
            given |= {"adapter": '"smtp"', "host": '"127.0.0.1"', "port": at, "sender": '"Rung <rung@example.test>"'}
        elif self.kind == "webhook":
            given |= {"adapter": '"webhook"', "url": f'"http://127.0.0.1:{at}/push"', "secret_env": '"KEY"'}
        else:
            given |= {"adapter": '"webhook"', "allow_private": "true", "secret_env": '"KEY"'}
        given |= fields
        text = "[channels.c]\nproviders = [{ " + ", ".join(f"{k} = {v}" for k, v in given.items()) + " }]\n"
        (config,) = parse_channels(text, "test")["c"]
        self.adapters.append(build_adapter(config, SECRETS))
        return self.adapters[-1]

    def call(self, to: str | None = None, text: str = "hello", subject: str = "news", **fields: Any) -> Call:
        """A call with a key of its own."""
        identity = uuid.uuid4()
        values: dict[str, Any] = {
            "key": f"{identity}:0",
            "notification_id": identity,
            "recipient": "ada",
            "kind": "news",
            "step_no": 0,
            "channel": "c",
            "to": to or self.address,
            "message": Message(subject, text, f"<p>{text}</p>"),
        }
        return Call(**(values | fields))

    def answers(self, *answers: dict[str, Any]) -> None:
        """How the server answers the next calls, whatever they are; then it accepts."""
        self.sink.answer({"match": {}, "per": "rule", "answers": list(answers)})

    def calls(self) -> list[dict[str, Any]]:
        """What the server received in this test."""
        return self.sink.calls()[self.before :]

    def nowhere(self) -> tuple[Adapter, Call]:
        """An adapter and a call that lead to a port on which nobody listens."""
        port = free_port()
        to = f"http://127.0.0.1:{port}/hook" if self.kind == "recipient" else self.address
        return self.adapter(port), self.call(to)


@pytest.fixture(scope="session")
def _sinks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Literal["http", "smtp"]], Sink]]:
    running: dict[str, Sink] = {}
    with ExitStack() as stack:

        def get(kind: Literal["http", "smtp"]) -> Sink:
            if kind not in running:
                running[kind] = stack.enter_context(running_sink(kind, tmp_path_factory.mktemp(kind)))
            return running[kind]

        yield get


@pytest.fixture(params=["smtp", "webhook", "recipient"])
async def provider(
    request: pytest.FixtureRequest, _sinks: Callable[[Literal["http", "smtp"]], Sink]
) -> AsyncIterator[Provider]:
    """Every adapter that has a server; the webhook adapter both with its own URL and with the recipient's."""
    kind: Kind = request.param
    sink = _sinks("smtp" if kind == "smtp" else "http")
    sink.answer()
    # The server is shared and keeps its record; what was there before is not of this test.
    provider = Provider(kind, sink, len(sink.calls()))
    yield provider
    for adapter in provider.adapters:
        await adapter.close()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    """A server of a test's own; each connection is closed when `serve` returns, and all of them in the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
