"""The processes that the processor's rows compare, one engine each, chosen by name in their JSON argument.

`rung`     the processor: its engine, handler and decision, on the run's own clock.
`faust`    the same on the engine on Faust.
`same`     bare quixstreams with the processor's settings that writes, for each input, the state and the outputs that
           the processor writes for it, as bytes from a script; it reads the state before, and decides nothing.
`counter`  quixstreams as its documentation has it: one counter in the state and one output for each input.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from deploy import garbage
from deploy.signals import stop_on_signals
from processor.domain.decide import decide
from processor.engine.changelog import ensure_changelog
from processor.engine.config import ProcessorConfig
from processor.engine.handler import Handler
from processor.engine.metrics import ProcessorMetrics
from processor.engine.quix import QuixEngine
from processor.engine.quix_app import ProcessorApplication, application, message_context
from schemas.topics import PROCESSOR_INPUTS, Naming
from tests.benchmarks.workload import KIND, LADDERS, clock_at

MODULE = "tests.benchmarks.engines"
"""How it is started."""
Script = dict[
    str, list[list[tuple[bytes | None, list[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes]]]]]]]
]
"""Of each topic and partition, what is written for each offset: the state and the outputs."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent tells the process."""

    mode: str
    kafka: str
    prefix: str
    state_dir: str
    script: str = ""
    kinds: int = 1
    """How many kinds have a ladder."""
    commit_interval: float = 0.05

    def config(self) -> ProcessorConfig:
        """As the service's own."""
        return ProcessorConfig(
            kafka={"bootstrap.servers": self.kafka},
            naming=Naming(self.prefix),
            ladders=LADDERS | {f"kind_{n}": replace(LADDERS[KIND], kind=f"kind_{n}") for n in range(1, self.kinds)},
            state_dir=Path(self.state_dir),
            commit_interval_seconds=self.commit_interval,
            engine="faust" if self.mode == "faust" else "quix",
        )


class Ticks:
    """The runs' clock: it ticks with each record."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self) -> int:
        self._count += 1
        return clock_at(self._count)


def rung(given: Arguments, stop: threading.Event) -> None:
    """The processor."""
    config = given.config()
    metrics = ProcessorMetrics(CollectorRegistry(), config.ladders)
    QuixEngine(config, Handler(decide, config.ladders, Ticks(), metrics), metrics).run(stop)


def faust(given: Arguments, stop: threading.Event) -> None:
    """The processor on Faust."""
    # The extra need not be there for the others.
    from processor.engine.faust_engine import FaustEngine

    config = given.config()
    metrics = ProcessorMetrics(CollectorRegistry(), config.ladders)
    FaustEngine(config, Handler(decide, config.ladders, Ticks(), metrics), metrics).run(stop)


def same(given: Arguments, stop: threading.Event) -> None:
    """Bare quixstreams that writes the same."""
    script = msgspec.msgpack.decode(Path(given.script).read_bytes(), type=Script)
    config = given.config()
    inputs = [config.naming(topic) for topic in PROCESSOR_INPUTS]
    ensure_changelog(config, inputs)
    app = application(config)
    frame = app.joined(inputs)
    context = frame.processing_context
    prefix = given.prefix

    def write(value: Any, key: bytes, timestamp: int, headers: Any) -> None:
        at = message_context()
        state, outputs = script[at.topic][at.partition][at.offset]
        store = context.checkpoint.get_store_transaction(frame.stream_id, at.partition)
        store.get_bytes(b"state", prefix=key)
        if state is not None:
            store.set_bytes(b"state", state, prefix=key)
        produce = context.producer.produce
        for topic, output_key, output, output_headers in outputs:
            produce(prefix + topic, value=output, key=output_key, headers=output_headers)

    frame.update(write, metadata=True)
    _run(app, stop)


def counter(given: Arguments, stop: threading.Event) -> None:
    """Bare quixstreams with one counter and one output."""
    naming = Naming(given.prefix)
    app = ProcessorApplication(
        broker_address=given.kafka,
        consumer_group=given.prefix + "rung-processor",
        processing_guarantee="exactly-once",
        commit_interval=given.commit_interval,
        auto_offset_reset="earliest",
        state_dir=given.state_dir,
        loglevel=None,
    )
    app.watch(given.config())
    source = app.topic(naming(PROCESSOR_INPUTS[0]), key_deserializer="str", value_deserializer="json")
    target = app.topic(given.prefix + "counts", key_serializer="str", value_serializer="json")

    def count(_: Any, state: Any) -> dict[str, int]:
        total = state.get("count", 0) + 1
        state.set("count", total)
        return {"count": total}

    app.dataframe(source).apply(count, stateful=True).to_topic(target)
    _run(app, stop)


def _run(app: ProcessorApplication, stop: threading.Event) -> None:
    def end() -> None:
        stop.wait()
        app.stop()

    threading.Thread(target=end, daemon=True).start()
    app.run()


def main() -> None:
    """Run until SIGTERM."""
    given = msgspec.convert(json.loads(sys.argv[1]), Arguments)
    stop = threading.Event()
    stop_on_signals(stop)
    if given.mode in ("rung", "faust"):
        # As the service does before it runs.
        garbage.seldom()
    {"rung": rung, "faust": faust, "same": same, "counter": counter}[given.mode](given, stop)


if __name__ == "__main__":
    main()
