"""The engine on Kafka: transactions, state in RocksDB and its changelog, through quixstreams.

The co-partitioned inputs are one stream with one store, keyed by recipient. Outputs, the state's changelog and the
input offsets go into one Kafka transaction, committed every `commit_interval_seconds`. Records are passed through
undecoded, so that one that cannot be read becomes a dead letter, byte for byte.
"""

import threading
import time
from typing import Any

import structlog
from confluent_kafka import Message

from processor.engine.changelog import ensure_changelog
from processor.engine.config import ProcessorConfig
from processor.engine.handler import Handler
from processor.engine.inputs import Inputs
from processor.engine.lag import Lookout
from processor.engine.metrics import ProcessorMetrics
from processor.engine.port import EngineError, StopTimeoutError
from processor.engine.quix_app import application
from schemas.topics import PROCESSOR_INPUTS

_log = structlog.get_logger("rung.processor")


class QuixEngine:
    """One instance of the processor on Kafka; it runs once."""

    def __init__(self, config: ProcessorConfig, handler: Handler, metrics: ProcessorMetrics | None = None) -> None:
        """Prepare the instance: looks at the inputs and creates the changelog.

        Raises:
            EngineError: an input is missing, or the inputs differ in their number of partitions.
            KafkaException: Kafka cannot be reached.
        """
        self._config = config
        partitions = ensure_changelog(config, map(config.naming, PROCESSOR_INPUTS))
        self._inputs = Inputs(config, handler, metrics, partitions)
        self._app = application(config)
        self._frame = self._app.for_each(self._inputs.topics, self._process)
        self._context = self._frame.processing_context
        self._producer = self._app.producer
        self._lookout = Lookout(config, self._inputs.topics, metrics)
        self._app.every_round(self._look)
        self._error: BaseException | None = None

    def run(self, stop: threading.Event) -> None:
        """See `port.Engine`. The work is done in a thread of its own, so that its end can be given a limit."""
        if stop.is_set():
            return
        ended = threading.Event()
        worker = threading.Thread(target=self._work, args=(ended,), name="processor", daemon=True)
        worker.start()
        _log.info("processor_started", instance=self._config.instance_id, group=self._config.group)
        while not stop.wait(0.1) and not ended.is_set():
            pass
        by_itself = not stop.is_set()
        self._config.ready(False)
        self._end(worker)
        if self._error is not None:
            raise self._error
        if by_itself:
            raise EngineError("the processor's thread ended by itself")
        _log.info("processor_stopped", instance=self._config.instance_id)

    def _end(self, worker: threading.Thread) -> None:
        deadline = time.monotonic() + self._config.shutdown_seconds
        while worker.is_alive() and time.monotonic() < deadline:
            # Asked again and again: an application that is still starting forgets that it was asked.
            self._app.stop()
            worker.join(0.1)
        if worker.is_alive():
            raise StopTimeoutError(f"the processor did not end within {self._config.shutdown_seconds} s")

    def _work(self, ended: threading.Event) -> None:
        try:
            self._app.run()
        except BaseException as error:
            self._error = error
        finally:
            ended.set()

    def _process(self, message: Message) -> None:
        store: Any = self._context.checkpoint.get_store_transaction(self._frame.stream_id, message.partition())
        names = self._inputs.names
        for output in self._inputs.process(message, store):
            self._producer.write(names[output.topic.name], output.key, output.value, output.headers)
        self._inputs.processed(message)

    def _look(self) -> None:
        # This is not called while state is read back.
        if self._lookout.due():
            self._config.ready(self._app.has_share)
            self._lookout.look(self._context.consumer, self._app.ran_dry)
