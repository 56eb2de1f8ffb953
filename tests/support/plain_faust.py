"""Faust as its documentation has it, as a process that counts the records of each key in a table.

Each count is written with the place of the record that it came from. It is what the engine `faust` is compared with:
`python -m tests.support.plain_faust JSON`.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import faust
import msgspec


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent tells the process."""

    bootstrap: str
    group: str
    source: str
    target: str
    state_dir: str
    partitions: int
    guarantee: str = "at_least_once"
    store: str = "rocksdb"
    session_seconds: float = 6.0


def application(given: Arguments) -> faust.App:
    """The application."""
    Path(given.state_dir).mkdir(parents=True, exist_ok=True)
    app = faust.App(
        given.group,
        broker=f"kafka://{given.bootstrap}",
        store=f"{given.store}://",
        datadir=given.state_dir,
        processing_guarantee=given.guarantee,
        broker_session_timeout=given.session_seconds,
        broker_heartbeat_interval=given.session_seconds / 3,
        topic_partitions=given.partitions,
        topic_replication_factor=1,
        web_enabled=False,
    )
    source = app.topic(given.source, key_type=bytes, value_type=bytes)
    target = app.topic(given.target, key_type=bytes, value_type=bytes)
    counts = app.Table("counts", key_type=bytes, value_type=int, default=int, partitions=given.partitions)

    @app.agent(source)
    async def count(stream: faust.StreamT[bytes]) -> None:
        async for event in stream.events():
            key, message = event.key, event.message
            counts[key] += 1
            await target.send(key=key, value=f"{counts[key]} {message.partition}/{message.offset}".encode())

    return app


def main() -> None:
    """Run until SIGTERM."""
    given = msgspec.json.decode(sys.argv[1], type=Arguments)
    app = application(given)
    app.Worker(loglevel=logging.WARNING, quiet=True).execute_from_commandline()


if __name__ == "__main__":
    main()
