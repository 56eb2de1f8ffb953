"""The console adapter: prints each message as one JSON line, so that a ladder can be watched without a provider.

It prints addresses and texts, which is its purpose; it is for development.
"""

import sys
from typing import TextIO

import msgspec

from processor.delivery.channels.port import Answer, Call, Failed, Result, Sent


class ConsoleAdapter:
    """Accepts everything."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def target(self, _to: str, /) -> str:
        """There is one console."""
        return ""

    async def send(self, call: Call) -> Result:
        """Print the message."""
        line = {
            "channel": call.channel,
            "to": call.to,
            "subject": call.message.subject,
            "text": call.message.text or call.message.html,
            "kind": call.kind,
            "key": call.key,
        }
        # Looked up at each call: the stream may be replaced while the process runs.
        stream = self._stream or sys.stdout
        text = msgspec.json.encode({name: value for name, value in line.items() if value is not None}).decode()
        try:
            stream.write(text + "\n")
            stream.flush()
        except UnicodeEncodeError:
            stream.write(text.encode("ascii", "backslashreplace").decode() + "\n")
        except (OSError, ValueError):
            return Failed("console_closed")
        return Sent(f"console:{call.key}")

    async def lookup(self, _key: str, /) -> Answer:
        """A console remembers nothing."""
        return Failed("lookup_unsupported")

    async def close(self) -> None:
        """Nothing is held."""
