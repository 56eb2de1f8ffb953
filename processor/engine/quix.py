"""The engine on Kafka: transactions, state in RocksDB and its changelog, through quixstreams.

The co-partitioned inputs are one stream with one store, keyed by recipient. Outputs, the state's changelog and the
input offsets go into one Kafka transaction, committed every `commit_interval_seconds`. Records are passed through
undecoded, so that one that cannot be read becomes a dead letter, byte for byte.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from confluent_kafka import KafkaException, Message

from processor.engine.config import ProcessorConfig
from processor.engine.handler import Handler
from processor.engine.metrics import ProcessorMetrics
from processor.engine.port import EngineError, InputRecord, OutputRecord, StopTimeoutError
from processor.engine.quix_app import application, ensure_changelog
from schemas.envelope import headers_of
from schemas.errors import DecodeError
from schemas.topics import CATALOGUE, PROCESSOR_INPUTS, Topic

LOOK_SECONDS = 1.0
"""How often the lag is looked at."""

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
        self._handler = handler
        self._metrics = metrics
        self._inputs: Mapping[str, Topic] = {config.naming(topic): topic for topic in PROCESSOR_INPUTS}
        self._partitions = ensure_changelog(config, self._inputs)
        self._app = application(config)
        self._frame = self._app.for_each(self._inputs, self._process)
        self._context = self._frame.processing_context
        self._producer = self._app.producer
        self._names = {topic.name: config.naming(topic) for topic in CATALOGUE}
        self._app.every_round(self._look)
        self._next_look = 0.0
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
        topic, partition, timestamp = self._inputs[message.topic()], message.partition(), message.timestamp()[1]
        place = (topic, partition, message.offset(), timestamp, message.key(), message.value())
        try:
            headers: Any = headers_of(message)
        except DecodeError as error:
            record = InputRecord(*place, None)
            self._write([self._handler.set_aside(record, error.reason, error.detail)])
            return
        store: Any = self._context.checkpoint.get_store_transaction(self._frame.stream_id, partition)
        self._config.at("processor.decide.before")
        self._write(self._handler.handle(InputRecord(*place, headers, self._partitions), store))
        self._config.at("processor.outputs.after")
        if self._metrics is not None:
            self._metrics.lags[topic.name].processed(partition, timestamp)

    def _write(self, outputs: Iterable[OutputRecord]) -> None:
        for output in outputs:
            self._producer.write(self._names[output.topic.name], output.key, output.value, output.headers)

    def _look(self) -> None:
        """Tell the metrics in which partitions something waits. Costs no request: both offsets are in the client."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        # This is not called while state is read back.
        self._config.ready(self._app.has_share)
        consumer = self._context.consumer
        waiting: dict[str, dict[int, bool]] = {topic.name: {} for topic in PROCESSOR_INPUTS}
        places: dict[tuple[str, int], tuple[int, int]] = {}
        try:
            held = [tp for tp in consumer.assignment() if tp.topic in self._inputs]
            for tp in consumer.position(held) if held else []:
                _, high = consumer.get_watermark_offsets(tp, cached=True)
                waiting[self._inputs[tp.topic].name][tp.partition] = 0 <= tp.offset < high
                places[tp.topic, tp.partition] = (tp.offset, high)
        except KafkaException as error:
            _log.debug("lag_unknown", error=str(error))
            return
        # With more to do than can be done, a partition that waits for its turn is behind and does not stand still.
        self._config.progress(places if self._app.ran_dry() else {})
        if self._metrics is None:
            return
        for name, partitions in waiting.items():
            self._metrics.lags[name].looked(partitions)
