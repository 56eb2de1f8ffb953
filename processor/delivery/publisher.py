"""Writes outcomes and dead letters, and tells when Kafka has acknowledged them."""

import asyncio
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from schemas.codec import encode, encode_key
from schemas.dead_letters import LetterRecord
from schemas.envelope import Envelope, Headers, to_headers
from schemas.records import Outcome
from schemas.topics import DEAD_LETTERS, OUTCOMES, PARTITIONER, Naming

SOURCE = "/rung/delivery"
SERVED_EVERY_SECONDS = 0.003
"""How often acknowledgements are asked for while some are open. The loop does so itself: a thread that waited for them
would have to wait for the interpreter at each of them, and a busy loop gives it up two hundred times a second."""


class PublishError(RuntimeError):
    """Kafka refused a record for good, or did not take it within the producer's time-out."""


class Publisher:
    """An idempotent producer; call it from the event loop alone."""

    def __init__(self, kafka: Mapping[str, str], naming: Naming, loop: asyncio.AbstractEventLoop) -> None:
        self._outcomes = naming(OUTCOMES)
        self._dead_letters = naming(DEAD_LETTERS)
        self._loop = loop
        self._producer = Producer(
            {
                **kafka,
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": PARTITIONER,
                # An outcome is waited for by its lane; the records are small and few per moment.
                "linger.ms": 1,
                "message.max.bytes": DEAD_LETTERS.max_message_bytes,
            }
        )
        self.failure: PublishError | None = None
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._timer: asyncio.TimerHandle | None = None

    def outcome(self, outcome: Outcome, acknowledged: Callable[[], None]) -> None:
        """Write an outcome; `acknowledged` is called in the event loop once Kafka has it."""
        envelope = Envelope(f"{outcome.key}:{outcome.claim}:{outcome.outcome}", Outcome.TYPE, SOURCE, outcome.at)
        self._write(self._outcomes, encode_key(outcome.recipient), encode(outcome), to_headers(envelope), acknowledged)

    def dead_letter(self, record: LetterRecord, acknowledged: Callable[[], None]) -> None:
        """Set a record aside; `acknowledged` is called in the event loop once Kafka has it."""
        self._write(self._dead_letters, *record, acknowledged)

    async def flush(self, seconds: float) -> bool:
        """Wait until all is acknowledged; false if it was not in time."""
        try:
            await asyncio.wait_for(self._idle.wait(), max(0.0, seconds))
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Take what is acknowledged; what is not is given up."""
        if self._timer is not None:
            self._timer.cancel()
        self._producer.poll(0)
        # The last reference ends the client's threads and connections.
        del self._producer

    def _write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, acknowledged: Callable[[], None]
    ) -> None:
        def delivered(error: KafkaError | None, _message: Message) -> None:
            self._delivered(error, acknowledged)

        self._open += 1
        self._idle.clear()
        try:
            # The queue holds 100,000 records, far above what the backlogs can bring.
            self._producer.produce(topic, value=value, key=key, headers=list(headers), on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            self._open -= 1
            if not self._open:
                self._idle.set()
            raise PublishError(f"{topic}: {error}") from error
        if self._timer is None:
            self._timer = self._loop.call_later(SERVED_EVERY_SECONDS, self._serve)

    def _delivered(self, error: KafkaError | None, acknowledged: Callable[[], None]) -> None:
        self._open -= 1
        if not self._open:
            self._idle.set()
        if error is None:
            acknowledged()
        else:
            self.failure = self.failure or PublishError(str(error))

    def _serve(self) -> None:
        self._timer = None
        try:
            self._producer.poll(0)
        finally:
            # Whatever one acknowledgement met, the others are waited for.
            if self._open:
                self._timer = self._loop.call_later(SERVED_EVERY_SECONDS, self._serve)
