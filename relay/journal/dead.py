"""Dead letters of the journal: written and acknowledged before the offset moves."""

import threading
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, Message, Producer

from relay.journal.events import SetAside
from schemas.envelope import legible_headers
from schemas.topics import DEAD_LETTERS, PARTITIONER, Naming

PRODUCER = {
    "partitioner": PARTITIONER,
    "enable.idempotence": True,
    "acks": "all",
    # librdkafka's own limit is below the topic's, and a dead letter is larger than the record that it holds.
    "message.max.bytes": DEAD_LETTERS.max_message_bytes,
}


class UndeliveredError(RuntimeError):
    """Kafka has not acknowledged a dead letter in time; it is to be tried again."""


class DeadLetters:
    """The producer of dead letters; made at the first one, since most journals never need it."""

    def __init__(self, kafka: Mapping[str, str], naming: Naming, stop: threading.Event) -> None:
        self._kafka = {**kafka, **PRODUCER}
        self._topic = naming(DEAD_LETTERS)
        self._stop = stop
        self._producer: Producer | None = None

    def write(self, letters: Sequence[SetAside], timeout: float = 60.0) -> None:
        """Write dead letters and return when all are acknowledged.

        Raises:
            UndeliveredError: not within `timeout` seconds, refused, or told to stop. Some may have been written.
        """
        if not letters:
            return
        if self._producer is None:
            self._producer = Producer(self._kafka)
        refused: list[KafkaError] = []

        def confirm(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        for item in letters:
            message = item.message
            headers = legible_headers(message, item.letter.detail)
            key, value, marked = item.letter.record(message.key(), message.value(), headers)
            self._producer.produce(self._topic, value, key, headers=marked, on_delivery=confirm)
        deadline = time.monotonic() + timeout
        while (waiting := self._producer.flush(0.2)) and time.monotonic() < deadline and not self._stop.is_set():
            pass
        if waiting or refused:
            self._producer.purge()
            self._producer.flush(0)
            self._producer = None
            raise UndeliveredError(f"{waiting} of {len(letters)} not acknowledged, {len(refused)} refused")
