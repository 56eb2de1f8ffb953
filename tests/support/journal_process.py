"""A journal as a process: `python -m tests.support.journal_process PREFIX SETTINGS-AS-JSON`."""

import json
import sys
import threading

from prometheus_client import CollectorRegistry

from deploy.signals import stop_on_signals
from relay.journal.config import JournalConfig
from relay.journal.service import run
from schemas.topics import Naming


def main() -> None:
    """Run until SIGTERM."""
    stop = threading.Event()
    stop_on_signals(stop)
    run(JournalConfig(naming=Naming(sys.argv[1]), **json.loads(sys.argv[2])), stop, CollectorRegistry())


if __name__ == "__main__":
    main()
