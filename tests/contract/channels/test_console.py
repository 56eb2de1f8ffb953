"""The console adapter keeps the same contract with nothing behind it."""

from __future__ import annotations

import io
import json

from processor.delivery.channels.console import ConsoleAdapter
from processor.delivery.channels.port import Call, Failed, Sent
from processor.delivery.templates import Message
from tests.support.delivery import delivery


def _call(text: str) -> Call:
    claim = delivery("ada")
    return Call(
        key=claim.key,
        notification_id=claim.notification_id,
        recipient="ada",
        kind="news",
        step_no=0,
        channel="push",
        to="token",
        message=Message(text=text),
    )


async def test_each_message_is_one_line() -> None:
    """Whatever the text holds."""
    stream = io.StringIO()
    call = _call("a\nb 🎉\0")
    assert await ConsoleAdapter(stream).send(call) == Sent(f"console:{call.key}")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line) == {"channel": "push", "to": "token", "text": "a\nb 🎉\0", "kind": "news", "key": call.key}


async def test_a_console_that_knows_only_ascii_still_prints() -> None:
    """The text is escaped."""
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii", write_through=True)
    assert isinstance(await ConsoleAdapter(stream).send(_call("שלום")), Sent)
    assert b"\\u05e9" in buffer.getvalue()


async def test_a_closed_console_is_failed() -> None:
    """It is never accepted silently."""
    stream = io.StringIO()
    stream.close()
    assert await ConsoleAdapter(stream).send(_call("x")) == Failed("console_closed")
    assert await ConsoleAdapter().lookup("k") == Failed("lookup_unsupported")
    assert ConsoleAdapter().target("x") == ""
    await ConsoleAdapter().close()
