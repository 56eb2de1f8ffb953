"""Kafka and PostgreSQL together: started at the same time, and both or neither."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.kafka import EmbeddedKafka
from deploy.local.postgres import EmbeddedPostgres
from deploy.local.server import Server


class Stack:
    """Both servers of the system on one state folder."""

    def __init__(
        self,
        state_dir: Path,
        *,
        kafka_port: int | None = None,
        postgres_port: int | None = None,
        fsync: bool = True,
        heap: str = "512m",
    ) -> None:
        """Describe the stack; nothing runs before `start`. Ports are chosen free if they are None."""
        self.kafka = EmbeddedKafka(state_dir, kafka_port, heap)
        self.postgres = EmbeddedPostgres(state_dir, postgres_port, fsync)

    @property
    def servers(self) -> tuple[Server, Server]:
        """Both servers."""
        return self.postgres, self.kafka

    def start(self) -> None:
        """Start both and return when they serve clients.

        Raises:
            StackError: one could not start, for the reason that the message tells; nothing is left running.
        """
        # What is bound to fail is found before anything is downloaded.
        for server in self.servers:
            server.check()
        with ThreadPoolExecutor(len(self.servers)) as pool:
            starts = [pool.submit(server.start) for server in self.servers]
            try:
                # One after the other as they end: the first failure is the one to tell.
                pending = set(starts)
                while pending:
                    done, pending = wait(pending, return_when="FIRST_EXCEPTION")
                    for start in done:
                        start.result()
            except BaseException:
                self.abort()
                wait(starts)
                self.stop()
                raise

    def abort(self) -> None:
        """Make a `start` that is running in another thread give up soon, with `AbortedError`."""
        for server in self.servers:
            server.abort()

    def failures(self) -> list[str]:
        """A sentence about each server that was started and has ended by itself; ask now and then."""
        return [failure for server in self.servers if (failure := server.failure()) is not None]

    def stop(self, timeout: float = 15.0) -> list[str]:
        """Stop both at the same time, within `timeout` seconds; returns the names of those that had to be killed."""
        with ThreadPoolExecutor(len(self.servers)) as pool:
            killed = pool.map(lambda server: (server.NAME, server.stop(timeout)), self.servers)
            return [name for name, was_killed in killed if was_killed]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
