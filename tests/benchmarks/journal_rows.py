"""Delivery events for the journal's benchmark, as the processor writes them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer

from schemas.codec import encode, encode_key
from schemas.envelope import Envelope, to_headers
from schemas.records import DeliveryEvent, EventType, PlannedStep
from schemas.topics import DELIVERY_EVENTS, Naming

KIND = "payment_action_required"
QUEUE = 50_000
"""Half of what the client's queue holds."""
EVENTS_EACH = 5
"""Events of one notification here: accepted, claimed, sent, resolved and one step suppressed."""


def events(number: int, at: int) -> Iterator[tuple[EventType, DeliveryEvent]]:
    """The life of one notification whose person acted after the first step."""
    identity, recipient = uuid.uuid4(), f"recipient-{number % 20_000:06}"
    base: dict[str, Any] = {
        "notification_id": identity,
        "recipient": recipient,
        "kind": KIND,
        "dedup_key": f"invoice-{number:09}",
    }
    key = f"{identity}:0"
    steps = tuple(
        PlannedStep(step_no=n, channel=channel, due_at=at + n * 600_000)
        for n, channel in enumerate(("push", "chat", "email"))
    )
    first: dict[str, Any] = {"step_no": 0, "channel": "push", "attempt": 1, "key": key, "at": at}
    yield (
        EventType.ACCEPTED,
        DeliveryEvent(**base, reason="accepted", at=at, steps=steps, expires_at=at + 86_400_000),
    )
    yield EventType.STEP_CLAIMED, DeliveryEvent(**base, **first, reason="due", due_at=at)
    yield (
        EventType.STEP_SENT,
        DeliveryEvent(
            **base, **first, reason="sent", provider="push-1", provider_ref=f"ref-{number:09}", latency_ms=41
        ),
    )
    yield EventType.RESOLVED, DeliveryEvent(**base, reason="resolved", detail="paid", at=at, depth=1)
    yield (
        EventType.STEP_SUPPRESSED,
        DeliveryEvent(**base, step_no=1, channel="chat", key=f"{identity}:1", reason="resolved", at=at),
    )


def publish(kafka: str, naming: Naming, total: int) -> None:
    """Write `total` events to the topic."""
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "lz4",
        }
    )
    topic, written = naming(DELIVERY_EVENTS), 0
    for number in range(-(-total // EVENTS_EACH)):
        at = time.time_ns() // 1_000_000
        for kind, event in events(number, at):
            if written < total:
                headers = to_headers(Envelope(str(uuid.uuid4()), kind.value, "/rung/processor", at))
                while len(producer) >= QUEUE:
                    producer.poll(0.1)
                producer.produce(topic, encode(event), encode_key(event.recipient), headers=headers)
                written += 1
        producer.poll(0)
    left = producer.flush(120)
    assert left == 0, f"{left} events were not acknowledged"
