"""Consume-produce-commit: the records of a batch, and how far their partitions are done, in one Kafka transaction."""

import functools
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from relay.delays.config import TRANSACTION_TIMEOUT_SECONDS, DelaysConfig
from relay.delays.records import Held, Output
from relay.transactions import bounded, end_predecessor
from schemas.topics import DEAD_LETTERS, DELAYS, DUE, PARTITIONER, TIERS, Tier, Topic

CALL_SECONDS = 2.0
"""How long one call waits before this side looks whether to go on; a call that timed out is made again."""
OPEN_SECONDS = 5.0
"""How long each call of a session's beginning may take; after that a new session tries."""

_LOG = logging.getLogger("rung.delays.producer")
_TARGETS: tuple[Topic | Tier, ...] = (*TIERS, DUE, DEAD_LETTERS)
_LARGEST = 8 * 1024 * 1024
"""Of one record before compression. The topics' own limit holds; the client must not refuse what a broker took."""


class AbortedError(Exception):
    """The transaction was aborted: nothing of it is visible. Records of a batch that is too large are `refused`."""

    def __init__(self, code: str, refused: Collection[Held]) -> None:
        super().__init__(code)
        self.code = code
        self.refused = refused


class SessionLostError(Exception):
    """It is not known here what became of the last transaction, or Kafka ended it: make both clients anew and read the
    committed positions again. `code` is Kafka's name of the error."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class FencedError(RuntimeError):
    """Kafka holds another client for the one that this instance id belongs to."""


class Transactions:
    """The transactional producer of one session."""

    def __init__(self, config: DelaysConfig, stop: threading.Event) -> None:
        self._config = config
        self._stop = stop
        self._refused: list[Held] = []
        self._names = {target.name: config.naming(target) for target in _TARGETS}
        self._producer = Producer(producer_settings(config), logger=_LOG)

    def open(self) -> None:
        """Take over the transactional id: ends an open transaction of a predecessor, or of the session before.

        Raises:
            KafkaException: Kafka does not answer, or refuses.
        """
        group = Consumer({**self._config.kafka, "group.id": self._config.group}, logger=_LOG)
        place = (self._config.naming(DELAYS[0]), 0)
        try:
            end_predecessor(self._producer, group, place, OPEN_SECONDS)
        finally:
            group.close()

    def close(self) -> None:
        """End the client now, and not when its objects are collected. An open transaction of it is left to the next."""
        del self._producer

    def commit(self, outputs: Sequence[Output], positions: list[TopicPartition], group: object) -> None:
        """Write `outputs` and the consumed `positions` of the group as one.

        Raises:
            AbortedError: none of it was written.
            SessionLostError: it is not known whether it was.
            FencedError: another client has taken over the transactional id.
        """
        began = time.monotonic()
        deadline = began + min(TRANSACTION_TIMEOUT_SECONDS, self._config.shutdown_seconds)
        try:
            self._write(outputs, positions, group, deadline)
        except SessionLostError as error:
            # The coordinator fences as well, but not before a transaction has timed out.
            if error.code == "_FENCED" and time.monotonic() - began < TRANSACTION_TIMEOUT_SECONDS:
                raise FencedError(error.code) from error
            raise

    def _write(
        self, outputs: Sequence[Output], positions: list[TopicPartition], group: object, deadline: float
    ) -> None:
        self._refused = []
        try:
            self._producer.begin_transaction()
            self._config.at("delays.forward.before")
            for item in outputs:
                self._produce(item, deadline)
            self._config.at("delays.forward.after")
            self._call(functools.partial(bounded, self._send_positions(positions, group)), deadline)
            self._config.at("delays.commit.before")
            self._call(self._producer.commit_transaction, deadline)
            self._config.at("delays.commit.after")
        except KafkaException as error:
            self._abort(error.args[0], deadline)

    def _send_positions(self, positions: list[TopicPartition], group: object) -> Callable[[float], object]:
        # A thread that is left behind holds its client, and not this session.
        producer = self._producer
        return lambda seconds: producer.send_offsets_to_transaction(positions, group, seconds)

    def _produce(self, item: Output, deadline: float) -> None:
        held = item.held
        if held.suspect:
            self._producer.flush(CALL_SECONDS)
        topic, failed = self._names[item.target.name], functools.partial(self._failed, held)
        while True:
            try:
                self._producer.produce(topic, item.value, item.key, headers=item.headers, on_delivery=failed)
                break
            except BufferError as error:
                if time.monotonic() >= deadline:
                    raise SessionLostError("_QUEUE_FULL") from error
                self._producer.poll(0.1)
            except KafkaException as error:
                self._failed(held, error.args[0], None)
                raise
        if held.suspect:
            self._producer.flush(CALL_SECONDS)

    def _failed(self, held: Held, error: KafkaError | None, _: Message | None) -> None:
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._refused.append(held)

    def _call(self, call: Callable[[float], object], deadline: float) -> None:
        """Make a transactional call, again while Kafka says that this may help.

        Raises:
            KafkaException: the transaction must be aborted.
            SessionLostError: see there.
        """
        while True:
            try:
                call(CALL_SECONDS)
                return
            except KafkaException as raised:
                error = raised.args[0]
                if error.txn_requires_abort():
                    raise
                if error.fatal() or not error.retriable() or time.monotonic() >= deadline:
                    raise SessionLostError(error.name()) from raised
                # Most retriable errors are time-outs and have waited; the others must not make a busy loop.
                self._stop.wait(0.05)

    def _abort(self, error: KafkaError, deadline: float) -> None:
        if error.fatal():
            raise SessionLostError(error.name())
        try:
            self._call(self._producer.abort_transaction, max(deadline, time.monotonic() + CALL_SECONDS))
        except KafkaException as raised:
            raise SessionLostError(raised.args[0].name()) from raised
        # The delivery reports of what was purged or refused come with a poll.
        self._producer.poll(0)
        raise AbortedError(error.name(), list(self._refused))


def producer_settings(config: DelaysConfig) -> dict[str, object]:
    """The settings of the transactional producer."""
    return {
        **config.kafka,
        "partitioner": PARTITIONER,
        "enable.idempotence": True,
        "acks": "all",
        "transactional.id": config.transactional_id,
        "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_SECONDS * 1000),
        "delivery.report.only.error": True,
        # A batch is flushed by its commit, so waiting for more records only costs time.
        "linger.ms": 0,
        # A transaction that follows another closely is answered "concurrent transactions" for some milliseconds; with
        # the default of 100 ms between two tries, such a transaction takes 110 ms in place of 20.
        "retry.backoff.ms": 5,
        # The default of ten seconds would keep what is due waiting after Kafka is back.
        "reconnect.backoff.max.ms": 1_000,
        "compression.type": "lz4",
        "message.max.bytes": _LARGEST,
    }
