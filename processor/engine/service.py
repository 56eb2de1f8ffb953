"""The processor as a service: the domain's decision on the Kafka engine."""

import threading
import time

from prometheus_client import CollectorRegistry

from processor.domain.decide import decide
from processor.engine.config import ProcessorConfig
from processor.engine.handler import Handler
from processor.engine.metrics import ProcessorMetrics
from processor.engine.port import Decide
from processor.engine.quix import QuixEngine


def run(
    config: ProcessorConfig, stop: threading.Event, registry: CollectorRegistry, decide_with: Decide = decide
) -> None:
    """Process until `stop` is set, finish the transaction in hand, and return within `config.shutdown_seconds`.

    Raises:
        EngineError: topics are missing, a stored state cannot be read, or the end took too long.
        KafkaException: Kafka refuses, or cannot be reached.
    """
    metrics = ProcessorMetrics(registry, config.ladders)
    handler = Handler(decide_with, config.ladders, wall_clock, metrics)
    QuixEngine(config, handler, metrics).run(stop)


def wall_clock() -> int:
    """Milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000
