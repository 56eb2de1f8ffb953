"""From a message of the client to the records that it makes the processor write: what every engine on Kafka does."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Message

from processor.engine.config import ProcessorConfig
from processor.engine.handler import Handler
from processor.engine.metrics import ProcessorMetrics
from processor.engine.port import InputRecord, OutputRecord, StateStore
from schemas.envelope import headers_of
from schemas.errors import DecodeError
from schemas.topics import CATALOGUE, PROCESSOR_INPUTS, Topic


class Inputs:
    """The topics that the processor reads, and what becomes of their records."""

    def __init__(
        self, config: ProcessorConfig, handler: Handler, metrics: ProcessorMetrics | None, partitions: int
    ) -> None:
        """`partitions` is how many each of the topics has."""
        self.topics: Mapping[str, Topic] = {config.naming(topic): topic for topic in PROCESSOR_INPUTS}
        """By their names on the cluster."""
        self.names: Mapping[str, str] = {topic.name: config.naming(topic) for topic in CATALOGUE}
        """On the cluster, of every topic of the catalogue."""
        self._handler = handler
        self._metrics = metrics
        self._partitions = partitions
        self._at = config.at

    def process(self, message: Message, store: StateStore) -> list[OutputRecord]:
        """Process one message: the new state goes to `store`, the outputs are returned. StateError: see `Handler`."""
        place = self._place(message)
        try:
            headers: Any = headers_of(message)
        except DecodeError as error:
            return [self._handler.set_aside(InputRecord(*place, None), error.reason, error.detail)]
        self._at("processor.decide.before")
        return self._handler.handle(InputRecord(*place, headers, self._partitions), store)

    def processed(self, message: Message) -> None:
        """What a message made the processor write is on its way."""
        self._at("processor.outputs.after")
        if self._metrics is not None:
            topic = self.topics[message.topic()]
            self._metrics.lags[topic.name].processed(message.partition(), message.timestamp()[1])

    def _place(self, message: Message) -> tuple[Topic, int, int, int, bytes | None, bytes | None]:
        topic, timestamp = self.topics[message.topic()], message.timestamp()[1]
        return topic, message.partition(), message.offset(), timestamp, message.key(), message.value()
