"""The idempotent producer: records of one recipient in order, each acknowledged by all in-sync replicas.

A record waits in the producer for as long as Kafka is away (no time-out): if one timed out, a later one of the same
recipient could overtake it. So a record ends in one of three ways: acknowledged; refused for itself (too large); or
the producer *breaks* (topic gone, a refusal by the broker, a fatal error), after which nothing that it holds counts,
and the caller goes back to what was acknowledged without a gap and starts again with a new producer.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from relay.outbox.records import MAX_VALUE_BYTES, TOPICS, Outgoing
from schemas.reasons import DeadReason
from schemas.topics import PARTITIONER, Naming

_LOG = structlog.get_logger("rung.outbox")
_KAFKA_LOG = logging.getLogger("rung.outbox.kafka")
# The client warns of this setting of ours at each start.
_KAFKA_LOG.addFilter(lambda line: "enable.gapless.guarantee is experimental" not in line.getMessage())
SETTINGS: Final[Mapping[str, str | int | bool]] = {
    "enable.idempotence": True,
    # A record that fails for good breaks the producer, rather than let later ones of its partition pass.
    "enable.gapless.guarantee": True,
    "acks": "all",
    "partitioner": PARTITIONER,
    "message.timeout.ms": 0,
    "message.max.bytes": MAX_VALUE_BYTES,
    # A broker that takes less than the catalogue says refuses a whole batch: in small ones only a record that is too
    # large by itself can meet that.
    "batch.size": 128 * 1024,
    "linger.ms": 2,
    "compression.type": "lz4",
    "queue.buffering.max.kbytes": 64 * 1024,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}
_DRAIN_SECONDS = 1.0
_OF_THE_RECORD: Final[Mapping[int, DeadReason]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: DeadReason.TOO_LARGE,
    KafkaError.INVALID_RECORD: DeadReason.BAD_FIELD,
}
Refusal = tuple[DeadReason, str]
"""Why Kafka does not take a record, and a detail for people."""


class Batch(Protocol):
    """Some of the records that were handed over together. One that is refused is known by its key and value."""

    acked: int
    """How many more of them Kafka has since the last `acknowledged`; counted here."""

    def acknowledged(self) -> None:
        """Take note of `acked`, and set it to 0."""
        ...

    def refused(self, key: bytes, value: bytes, refusal: Refusal) -> None:
        """Kafka does not take this one."""
        ...


Report = Callable[[KafkaError | None, Message], None]


class Publisher:
    """Publishes records and tells their batch what became of them, from `send` or `poll`: of each that is refused by
    itself, and how many were acknowledged together."""

    def __init__(self, kafka: Mapping[str, str], naming: Naming) -> None:
        self._config: dict[str, Any] = {**kafka, **SETTINGS, "error_cb": self._on_error, "logger": _KAFKA_LOG}
        self._names = {topic.name: naming(topic) for topic in TOPICS.values()}
        self._halted = False
        self._broken: str | None = None
        self._generation = 0
        self._acked: list[Batch] = []
        """The batches that know of acknowledgements which they were not told of, in this generation."""
        self._producer = Producer(self._config)

    @property
    def broken(self) -> str | None:
        """Why `reset` must be called before anything else is sent; None while all is well."""
        return self._broken

    def report(self, batch: Batch) -> Report:
        """What the producer calls for each record of a batch. One for all of them, and it only counts: a call for each
        record is a good part of what a record costs."""
        generation, acked = self._generation, self._acked

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                if not batch.acked:
                    acked.append(batch)
                batch.acked += 1
            elif generation == self._generation:
                self._failed(error, message, batch)

        return delivered

    def _failed(self, error: KafkaError, message: Message, batch: Batch) -> None:
        if error.code() in _OF_THE_RECORD:
            refusal = (_OF_THE_RECORD[error.code()], f"Kafka refuses the record: {error.name()}")
            batch.refused(message.key() or b"", message.value() or b"", refusal)
        else:
            self._broken = self._broken or error.name()

    def send(self, record: Outgoing, batch: Batch, report: Report) -> bool:
        """Hand over a record of a batch, with the batch's `report`; False if the queue is full (poll, and try again) or
        the producer is halted or broken."""
        if self._broken is not None or self._halted:
            return False
        topic, key, value, headers = record
        try:
            self._producer.produce(self._names[topic.name], value, key, headers=headers, on_delivery=report)
        except BufferError:
            return False
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() not in _OF_THE_RECORD:
                self._broken = error.name()
                return False
            refusal = (_OF_THE_RECORD[error.code()], f"the record is larger than Kafka takes: {error.name()}")
            batch.refused(key, value, refusal)
        return True

    def poll(self, seconds: float) -> None:
        """Serve call-backs; waits at most so long for the first one."""
        try:
            self._producer.poll(seconds)
        except KafkaException as raised:
            # A fatal error; what it means for each record comes with the next call-backs.
            self._broken = self._broken or raised.args[0].name()
        for batch in self._acked:
            batch.acknowledged()
        self._acked.clear()

    @property
    def holds(self) -> int:
        """How many records, or call-backs of records, are still in the producer."""
        return len(self._producer)

    def halt(self) -> None:
        """Drop everything that is not acknowledged and take nothing more; may be called from any thread."""
        self._halted = True
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    def reset(self) -> None:
        """Serve the last call-backs, drop everything that is not acknowledged, and begin with a new producer."""
        self._drain()
        self._producer = Producer(self._config)
        self._broken = None

    def close(self) -> None:
        """Drop what is left, and end."""
        self._halted = True
        self._drain()

    def _drain(self) -> None:
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        deadline = time.monotonic() + _DRAIN_SECONDS
        while len(self._producer) and time.monotonic() < deadline:
            self.poll(0.05)
        self._generation += 1
        self._acked = []  # what comes yet is counted in the old one, and by nobody

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._broken = self._broken or error.name()
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            _LOG.warning("kafka_away")
