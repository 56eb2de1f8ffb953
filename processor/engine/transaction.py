"""One instance's transactions: outputs, changelog and positions, committed together in the name of a group's member."""

import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from processor.engine.clients import writing
from processor.engine.config import ProcessorConfig
from processor.engine.port import EngineError
from relay.transactions import bounded
from schemas.envelope import Headers

BUFFER_SECONDS = 30.0
"""How long to wait for room in the client before giving up."""
ANY_PARTITION = -1
"""The client chooses by the key."""


class Transactions:
    """A transactional producer. Not thread-safe. What it raises ends the process: its successor begins again."""

    def __init__(self, config: ProcessorConfig) -> None:
        """No connection is made yet."""
        self._at = config.at
        self._seconds = config.transaction_seconds
        self._producer = Producer({**config.kafka, **writing(config)})

    def take_over(self) -> None:
        """End the transaction that this instance's predecessor left open, and shut it out. KafkaException: it cannot
        be done."""
        self._producer.init_transactions(self._seconds)

    def begin(self) -> None:
        """Open a transaction."""
        self._producer.begin_transaction()

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int = ANY_PARTITION,
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        """Append a record to the transaction. There is no report for each: a transaction of which a record was not
        written cannot be committed.

        Raises:
            BufferError: the client holds as much as it may, and gets rid of nothing.
        """
        deadline = time.monotonic() + BUFFER_SECONDS
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery, headers=headers)
                return
            except BufferError:
                if time.monotonic() >= deadline:
                    raise
                self._producer.poll(0.1)

    def flush(self) -> None:
        """Wait until all is written. EngineError: not in time."""
        if left := self._producer.flush(self._seconds):
            raise EngineError(f"{left} records were not acknowledged within {self._seconds} s")

    def commit(self, positions: Mapping[tuple[str, int], int], member: bytes) -> None:
        """End the transaction with the positions of its inputs, by topic and partition.

        Kafka refuses positions that come from a member, or a generation of the group, that is no longer current; so an
        instance whose partitions were taken away, and that did not notice, can commit nothing.

        Args:
            positions: of each input partition, the next offset to be read.
            member: the group's metadata, as `membership.metadata` makes it.

        Raises:
            EngineError: the group has gone on without this instance.
            KafkaException: the transaction failed; none of it is to be seen.
        """
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        self.flush()
        self._at("processor.commit.before")
        try:
            bounded(lambda s: self._producer.send_offsets_to_transaction(offsets, member, s), self._seconds)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise EngineError(
                    f"the group has gone on without this instance ({error.args[0].name()}); nothing was committed"
                ) from error
            raise
        bounded(self._producer.commit_transaction, self._seconds)
        self._at("processor.commit.after")


_FENCED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)
