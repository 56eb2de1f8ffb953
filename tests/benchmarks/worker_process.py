"""A delivery worker as a process with as many slots as a benchmark asks for, in its JSON argument."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from deploy import garbage
from deploy.logs import configure
from deploy.signals import stop_on_signals
from processor.delivery.channels_config import parse_channels
from processor.delivery.config import DeliveryConfig
from processor.delivery.service import run
from schemas.topics import Naming


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent tells the process."""

    kafka: str
    prefix: str
    folder: str
    slots: int


def main() -> None:
    """Deliver until SIGTERM."""
    given = msgspec.convert(json.loads(sys.argv[1]), Arguments)
    stop = threading.Event()
    stop_on_signals(stop)
    configure("info", "deliver")
    folder = Path(given.folder)
    config = DeliveryConfig(
        kafka={"bootstrap.servers": given.kafka},
        naming=Naming(given.prefix),
        channels=parse_channels((folder / "channels.toml").read_text(), "channels.toml"),
        templates_dir=folder / "templates",
        instance_id="bench",
        concurrency=given.slots,
    )
    garbage.seldom()
    run(config, stop, CollectorRegistry())


if __name__ == "__main__":
    main()
