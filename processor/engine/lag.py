"""A look about once a second at where each partition stands: for the lag, and for whoever watches for a standstill."""

import time
from collections.abc import Callable, Mapping

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from processor.engine.config import ProcessorConfig
from processor.engine.metrics import ProcessorMetrics
from schemas.topics import PROCESSOR_INPUTS, Topic

LOOK_SECONDS = 1.0
"""How often the lag is looked at."""

_log = structlog.get_logger("rung.processor")


class Lookout:
    """Tells the metrics in which partitions something waits, and the health how far each is. Costs no request: what it
    asks for is in the client."""

    def __init__(
        self, config: ProcessorConfig, topics: Mapping[str, Topic], metrics: ProcessorMetrics | None = None
    ) -> None:
        """`topics` are the inputs, by their names on the cluster."""
        self._config = config
        self._topics = topics
        self._metrics = metrics
        self._next = 0.0

    def due(self) -> bool:
        """Whether it is time to look; asking sets the next time."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + LOOK_SECONDS
        return True

    def look(
        self,
        consumer: Consumer,
        ran_dry: Callable[[], bool],
        positions: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        """Look.

        Args:
            consumer: what it holds is what is looked at.
            ran_dry: whether there was a moment without work since the last look.
            positions: where each partition stands, by topic and number; without it, where the consumer does.
        """
        waiting: dict[str, dict[int, bool]] = {topic.name: {} for topic in PROCESSOR_INPUTS}
        places: dict[tuple[str, int], tuple[int, int]] = {}
        try:
            held = [tp for tp in consumer.assignment() if tp.topic in self._topics]
            for tp in consumer.position(held) if held else []:
                _, high = consumer.get_watermark_offsets(TopicPartition(tp.topic, tp.partition), cached=True)
                waiting[self._topics[tp.topic].name][tp.partition] = 0 <= tp.offset < high
                stands = tp.offset if positions is None else positions.get((tp.topic, tp.partition), tp.offset)
                # Where nothing was committed yet, the client has a number below zero.
                places[tp.topic, tp.partition] = (max(0, stands), high)
        except KafkaException as error:
            _log.debug("lag_unknown", error=str(error))
            return
        # With more to do than can be done, a partition that waits for its turn is behind and does not stand still.
        self._config.progress(places if ran_dry() else {})
        if self._metrics is None:
            return
        for name, partitions in waiting.items():
            self._metrics.lags[name].looked(partitions)
