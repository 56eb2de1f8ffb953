"""The delayer's baseline, as a process: transactional consume-produce with nothing in between.

It reads the same topics and writes the same records, in transactions of the delayer's own size and settings, and looks
at no moment: what is read is written.
"""

from __future__ import annotations

import json
import sys
import threading

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition

from deploy.signals import stop_on_signals
from relay.delays.config import DelaysConfig
from relay.delays.session import consumer_settings
from relay.delays.transactions import producer_settings
from schemas.topics import DELAYS, DUE, Naming

IDLE_SECONDS = 0.1


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent tells the process."""

    kafka: str
    prefix: str
    batch_size: int = 2_000


def forward(given: Arguments, stop: threading.Event) -> None:
    """Copy records until told to stop."""
    config = DelaysConfig({"bootstrap.servers": given.kafka}, "bare", Naming(given.prefix))
    producer = Producer(producer_settings(config))
    producer.init_transactions()
    # The assignor that hands over whole assignments: nothing here handles increments.
    strategy = {"partition.assignment.strategy": "range", "queued.max.messages.kbytes": 16_384}
    consumer = Consumer(consumer_settings(config) | strategy)
    consumer.subscribe([config.naming(topic) for topic in DELAYS])
    due = config.naming(DUE)
    while not stop.is_set():
        messages = consumer.consume(given.batch_size, IDLE_SECONDS)
        if not messages:
            continue
        producer.begin_transaction()
        positions: dict[tuple[str, int], int] = {}
        for message in messages:
            producer.produce(due, value=message.value(), key=message.key(), headers=message.headers())
            positions[message.topic(), message.partition()] = message.offset() + 1
        places = [TopicPartition(*place, offset) for place, offset in positions.items()]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata())
        producer.commit_transaction()
    consumer.close()


def main() -> None:
    """Run until SIGTERM."""
    stop = threading.Event()
    stop_on_signals(stop)
    forward(msgspec.convert(json.loads(sys.argv[1]), Arguments), stop)


if __name__ == "__main__":
    main()
