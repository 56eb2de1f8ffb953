"""A processor as a process of its own, with the decision that its arguments name: started by the engine's tests."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from deploy.crash import At, nowhere
from deploy.signals import stop_on_signals
from processor.domain.decide import decide
from processor.domain.model import Decision, Event
from processor.engine.config import Engine, ProcessorConfig, Store
from processor.engine.port import Decide
from processor.engine.quix_clients import WatchedProducer
from processor.engine.service import run
from processor.engine.transaction import Transactions
from schemas.state import Ladder, RecipientState
from schemas.topics import Naming
from tests.support.engine_script import count

DECISIONS: dict[str, Decide] = {"count": count, "decide": decide}


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent tells the process, as JSON in its one argument."""

    bootstrap: str
    prefix: str
    state_dir: str
    decision: str
    instance_id: str = "0"
    session_seconds: float = 10.0
    engine: Engine = "quix"
    store: Store = "rocksdb"
    ladders: dict[str, Ladder] = {}
    kafka: dict[str, str] = {}
    """More of librdkafka's settings; they win."""
    crash_at: str = ""
    """A name of `CRASH_POINTS`: the process kills itself there."""


CRASH_POINTS = {
    "decision": 150,
    "outputs": 150,
    "processor.commit.before": 2,
    "processor.commit.after": 2,
    "processor.state.after": 2,
}
"""Where a process can be made to die, and at which passing of the point."""


def die_at(point: str, decide_with: Decide) -> tuple[Decide, At]:
    """Arm a crash point; returns the decision to run with, and what the engine calls at its points."""
    passed = 0

    def here() -> None:
        nonlocal passed
        passed += 1
        if passed == CRASH_POINTS[point]:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying_decide(state: RecipientState | None, event: Event, now: int) -> Decision:
        here()
        return decide_with(state, event, now)

    def at(name: str) -> None:
        if name == point:
            here()

    if point == "outputs":
        _flush_each(here)
    return (dying_decide if point == "decision" else decide_with), at


def _flush_each(after: Callable[[], None]) -> None:
    """Flush each record that is written, so that it does lie in its topic, in a transaction that nobody ends.

    The one who writes is patched: what happens there is what a kill from outside would hit only by luck.
    """

    def patch(owner: Any) -> None:
        original = owner.write

        def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            self.flush()
            after()
            return result

        owner.write = patched

    patch(WatchedProducer)
    patch(Transactions)


def main() -> None:
    """Run until SIGTERM; exit 0 then, and 1 if the engine gives up."""
    arguments = msgspec.json.decode(sys.argv[1], type=Arguments)
    stop = threading.Event()
    stop_on_signals(stop)
    decide_with: Decide = DECISIONS[arguments.decision]
    at: At = nowhere
    if arguments.crash_at:
        decide_with, at = die_at(arguments.crash_at, decide_with)
    config = ProcessorConfig(
        kafka={"bootstrap.servers": arguments.bootstrap, **arguments.kafka},
        naming=Naming(arguments.prefix),
        ladders=arguments.ladders,
        state_dir=Path(arguments.state_dir),
        instance_id=arguments.instance_id,
        session_seconds=arguments.session_seconds,
        engine=arguments.engine,
        store=arguments.store,
        at=at,
    )
    run(config, stop, CollectorRegistry(), decide_with=decide_with)


if __name__ == "__main__":
    main()
