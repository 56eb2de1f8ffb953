"""The library's two clients, with a short way past its own for each record, and with eyes on them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from quixstreams.internal_consumer import InternalConsumer
from quixstreams.internal_producer import InternalProducer

from processor.engine.neighbours import Neighbours
from relay.transactions import bounded
from schemas.envelope import Headers

ANY_PARTITION = -1
"""The client chooses by the key."""


class WatchedProducer(InternalProducer):
    """The library's producer, which says when it passes the seams of a transaction."""

    at: Callable[[str], None]
    buffer_seconds = 30.0
    commit_seconds: float
    """How long a commit may be tried; after that the process ends, and its successor begins where it stood."""

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int = ANY_PARTITION,
        on_delivery: Callable[..., None] | None = None,
    ) -> None:
        """Append a record to the transaction. There is no report for each: a transaction of which a record was not
        written cannot be committed.

        Raises:
            BufferError: the client holds as much as it may, and gets rid of nothing.
        """
        client = self._producer._producer
        deadline = time.monotonic() + self.buffer_seconds
        while True:
            try:
                client.produce(topic, value, key, partition, on_delivery, headers=headers)
                return
            except BufferError:
                if time.monotonic() >= deadline:
                    raise
                client.poll(0.1)

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Remember the offset of a changelog record, as the library does."""
        self._on_delivery(error, message)

    def begin_transaction(self) -> None:
        """The state of the transaction before is on the disk by now."""
        self.at("processor.state.after")
        super().begin_transaction()  # type: ignore[no-untyped-call]

    def commit_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float | None = None
    ) -> None:
        """Outputs and changelog are written and wait for the commit."""
        self.at("processor.commit.before")
        commit = functools.partial(super().commit_transaction, positions, group_metadata)
        bounded(commit, self.commit_seconds if timeout is None else timeout)
        self.at("processor.commit.after")


class WatchedConsumer(InternalConsumer):
    """The library's consumer, which tells of each wait for a record: in the work, and while state is read back."""

    beat: Callable[[], None]
    neighbours: Neighbours
    ran_dry = False
    """Whether a wait ended without a record since somebody last looked and set this back."""

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for a record."""
        self.beat()
        found = super().poll(*args, **kwargs)
        self.ran_dry |= found is None
        return found

    def consume(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for records."""
        self.beat()
        return super().consume(*args, **kwargs)

    def arriving(self, seconds: float) -> Iterator[Message]:
        """The records that are there, the first of them after a wait of `seconds` at most.

        Raises:
            KafkaException: the client says that reading failed.
            EngineError: another engine runs in the group.
        """
        self.beat()
        poll = self._consumer.poll
        message = poll(seconds)
        self.ran_dry |= message is None
        while message is not None:
            if (error := message.error()) is None:
                yield message
            elif error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
                # The client goes on trying by itself.
                self.neighbours.met()
            else:
                raise KafkaException(error)
            message = poll(0)
