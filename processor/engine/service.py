"""The processor as a service: the domain's decision on the Kafka engine."""

import threading
import time

from prometheus_client import CollectorRegistry

from processor.domain.decide import decide
from processor.engine.config import ProcessorConfig
from processor.engine.handler import Handler
from processor.engine.metrics import ProcessorMetrics
from processor.engine.port import Decide, Engine


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
    _engine(config, handler, metrics).run(stop)


def _engine(config: ProcessorConfig, handler: Handler, metrics: ProcessorMetrics) -> Engine:
    # Only what is run is imported: the one need not be installed, and the other takes its time.
    if config.engine == "faust":
        from processor.engine.faust_engine import FaustEngine

        return FaustEngine(config, handler, metrics)
    from processor.engine.quix import QuixEngine

    return QuixEngine(config, handler, metrics)


def wall_clock() -> int:
    """Milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000
