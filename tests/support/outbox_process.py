"""An outbox relay as a process of its own, for tests that end it: settings come as JSON in the first argument."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from deploy.signals import stop_on_signals
from relay.outbox.config import OutboxConfig
from relay.outbox.service import run
from schemas.topics import Naming

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def relay_process(**settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A running relay, killed at the end if it still runs; `prefix` is the topics' prefix, the rest OutboxConfig's."""
    command = [sys.executable, "-m", "tests.support.outbox_process", json.dumps(settings)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def main() -> None:
    """Run until SIGTERM."""
    settings = json.loads(sys.argv[1])
    stop = threading.Event()
    stop_on_signals(stop)
    run(OutboxConfig(naming=Naming(settings.pop("prefix")), **settings), stop, CollectorRegistry())


if __name__ == "__main__":
    main()
