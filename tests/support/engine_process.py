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

from deploy.signals import stop_on_signals
from processor.domain.decide import decide
from processor.domain.model import Decision, Event
from processor.engine.config import ProcessorConfig
from processor.engine.port import Decide
from processor.engine.quix_clients import WatchedProducer
from processor.engine.quix_state import StateTransaction
from processor.engine.service import run
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
    ladders: dict[str, Ladder] = {}
    crash_at: str = ""
    """A name of `CRASH_POINTS`: the process kills itself there."""


CRASH_POINTS = {"decision": 150, "outputs": 150, "before commit": 2, "after commit": 2, "state written": 2}
"""Where a process can be made to die, and at which passing of the point."""


def die_at(point: str, decide_with: Decide) -> Decide:
    """Arm a crash point; returns the decision to run with.

    The library is patched at the seams between its steps: what happens there is what a kill from outside would hit
    only by luck.
    """
    passed = 0

    def here() -> None:
        nonlocal passed
        passed += 1
        if passed == CRASH_POINTS[point]:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying_decide(state: RecipientState | None, event: Event, now: int) -> Decision:
        here()
        return decide_with(state, event, now)

    def after(owner: type, name: str, first: Callable[[Any], None] = lambda _: None) -> None:
        original = getattr(owner, name)

        def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            first(self)
            here()
            return result

        setattr(owner, name, patched)

    def before(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
            here()
            return original(self, *args, **kwargs)

        setattr(owner, name, patched)

    match point:
        case "decision":
            return dying_decide
        case "outputs":
            # Flushed first, so that the records do lie in the topics, in a transaction that nobody ends.
            after(WatchedProducer, "write", lambda producer: producer.flush())
        case "before commit":
            before(WatchedProducer, "commit_transaction")
        case "after commit":
            after(WatchedProducer, "commit_transaction")
        case "state written":
            after(StateTransaction, "flush")
        case _:
            raise ValueError(point)
    return decide_with


def main() -> None:
    """Run until SIGTERM; exit 0 then, and 1 if the engine gives up."""
    arguments = msgspec.json.decode(sys.argv[1], type=Arguments)
    stop = threading.Event()
    stop_on_signals(stop)
    config = ProcessorConfig(
        kafka={"bootstrap.servers": arguments.bootstrap},
        naming=Naming(arguments.prefix),
        ladders=arguments.ladders,
        state_dir=Path(arguments.state_dir),
        instance_id=arguments.instance_id,
        session_seconds=arguments.session_seconds,
    )
    decide_with = DECISIONS[arguments.decision]
    if arguments.crash_at:
        decide_with = die_at(arguments.crash_at, decide_with)
    run(config, stop, CollectorRegistry(), decide_with=decide_with)


if __name__ == "__main__":
    main()
