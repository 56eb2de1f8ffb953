"""The worker's publisher: acknowledgements are asked for while something is open, whatever one of them meets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from processor.delivery import publisher
from processor.delivery.publisher import Publisher
from schemas.dead_letters import LetterRecord
from schemas.topics import Naming

Delivered = Callable[[Any, Any], None]


class Client:
    """Kafka's client, as far as the publisher asks for it: one acknowledgement for each poll."""

    def __init__(self, _: object) -> None:
        self.open: list[Delivered] = []

    def produce(self, _topic: str, *, on_delivery: Delivered, **_: object) -> None:
        """Take a record."""
        self.open.append(on_delivery)

    def poll(self, _: float) -> None:
        """Acknowledge one."""
        if self.open:
            self.open.pop(0)(None, None)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers without Kafka."""
    monkeypatch.setattr(publisher, "Producer", Client)


@pytest.mark.usefixtures("client")
async def test_all_are_acknowledged_and_then_nothing_is_asked() -> None:
    """Each once, in order; with nothing open no timer runs."""
    written = Publisher({}, Naming(), asyncio.get_running_loop())
    seen: list[int] = []
    for number in range(5):
        written.dead_letter(LetterRecord(b"k", b"v", []), lambda n=number: seen.append(n))  # type: ignore[misc]
    assert await written.flush(5.0)
    assert seen == [0, 1, 2, 3, 4]
    assert written._timer is None
    written.close()


@pytest.mark.usefixtures("client")
async def test_an_acknowledgement_that_fails_does_not_stop_the_others() -> None:
    """Its error is told by the loop; the next one comes all the same."""
    loop = asyncio.get_running_loop()
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    written = Publisher({}, Naming(), loop)
    done = asyncio.Event()
    written.dead_letter(LetterRecord(b"k", b"v", []), lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    written.dead_letter(LetterRecord(b"k", b"v", []), done.set)
    await asyncio.wait_for(done.wait(), 5.0)
    assert [type(context["exception"]) for context in told] == [ZeroDivisionError]
    written.close()
