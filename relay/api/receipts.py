"""Provider receipts: the one thing that the API writes to Kafka, acknowledged before it is answered."""

import asyncio
import threading
import time
from collections.abc import Mapping
from uuid import UUID, uuid5

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from relay.api.bodies import ReceiptBody, utc
from relay.api.problems import Problem
from relay.journal.status import Status
from schemas.codec import encode, encode_key
from schemas.envelope import Envelope, to_headers
from schemas.records import Outcome, OutcomeKind
from schemas.topics import OUTCOMES, PARTITIONER, Naming

SOURCE = "/rung/api"
NAMESPACE = UUID("1d5e6b1a-3f1c-5b43-9a0e-6f2b5f8a7c11")
PRODUCER = {"partitioner": PARTITIONER, "enable.idempotence": True, "acks": "all"}


def outcome(receipt: ReceiptBody, known: Status, now: int) -> Outcome:
    """A receipt as the processor reads it.

    Raises:
        Problem: 422 if the key or the step is not one of this notification.
    """
    if receipt.key != f"{receipt.notification_id}:{receipt.step_no}":
        raise Problem(422, "is not the key of this notification and step", field="key")
    channel = next((s.channel for s in known.steps if s.step_no == receipt.step_no), None)
    if channel is None:
        raise Problem(422, "this notification has no such step; steps are counted from 0", field="step_no")
    at = utc(receipt.at, "at")
    return Outcome(
        notification_id=receipt.notification_id,
        recipient=known.recipient,
        dedup_key=known.dedup_key,
        step_no=receipt.step_no,
        channel=channel,
        key=receipt.key,
        outcome=OutcomeKind(receipt.outcome),
        reason=receipt.reason or "",
        provider=receipt.provider,
        provider_ref=receipt.provider_ref,
        at=now if at is None else round(at.timestamp() * 1000),
    )


class Receipts:
    """The producer of outcomes. One thread hears Kafka's acknowledgements and hands them to the event loop."""

    def __init__(self, kafka: Mapping[str, str], naming: Naming, wait_seconds: float) -> None:
        self._topic = naming(OUTCOMES)
        self._wait = wait_seconds
        self._producer = Producer({**kafka, **PRODUCER, "message.timeout.ms": round(wait_seconds * 1000)})
        self._closing = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="receipts", daemon=True)
        self._poller.start()

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(0.2)

    async def write(self, record: Outcome) -> None:
        """Write an outcome and return when Kafka has acknowledged it.

        Raises:
            Problem: 503 if it has not; the same receipt may be sent again.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[KafkaError | None] = loop.create_future()

        def settle(error: KafkaError | None) -> None:
            if not done.done():
                done.set_result(error)

        def confirm(error: KafkaError | None, _: Message) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, error)

        identity = str(uuid5(NAMESPACE, f"{record.key}|{record.outcome}|{record.provider_ref}"))
        envelope = Envelope(identity, Outcome.TYPE, SOURCE, time.time_ns() // 1_000_000)
        try:
            self._producer.produce(
                self._topic,
                value=encode(record),
                key=encode_key(record.recipient),
                headers=to_headers(envelope),
                on_delivery=confirm,
            )
            error = await asyncio.wait_for(done, self._wait + 1)
        except (BufferError, KafkaException, TimeoutError):
            raise Problem(503, "Kafka does not answer; send the receipt again") from None
        if error is not None:
            raise Problem(503, f"Kafka has not taken the receipt ({error.name()}); send it again")

    def close(self) -> None:
        """Stop the thread; every receipt that was answered 202 has been acknowledged before."""
        self._closing.set()
        self._poller.join()
