"""A processor as a process of its own, with the decision that its arguments name: started by the engine's tests."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from processor.domain.decide import decide
from processor.engine.config import ProcessorConfig
from processor.engine.port import Decide
from processor.engine.service import run
from schemas.state import Ladder
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


def main() -> None:
    """Run until SIGTERM; exit 0 then, and 1 if the engine gives up."""
    arguments = msgspec.json.decode(sys.argv[1], type=Arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    config = ProcessorConfig(
        kafka={"bootstrap.servers": arguments.bootstrap},
        naming=Naming(arguments.prefix),
        ladders=arguments.ladders,
        state_dir=Path(arguments.state_dir),
        instance_id=arguments.instance_id,
        session_seconds=arguments.session_seconds,
    )
    run(config, stop, CollectorRegistry(), decide_with=DECISIONS[arguments.decision])


if __name__ == "__main__":
    main()
