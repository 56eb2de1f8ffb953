"""The jars of Kafka Connect and of Debezium, pinned and kept like Kafka's own; only this benchmark needs them.

`python -m tests.benchmarks.debezium_jars` resolves the two coordinates anew and writes both locks.
"""

from __future__ import annotations

import os
from pathlib import Path

from deploy.local import jars

CONNECT = "org.apache.kafka:connect-runtime:4.2.0"
DEBEZIUM = "io.debezium:debezium-connector-postgres:3.6.1.Final"
CONNECT_LOCK = Path(__file__).with_name("connect.lock")
DEBEZIUM_LOCK = Path(__file__).with_name("debezium.lock")
# Connect gives these to its plugins, and would not look for them in a plugin's own folder.
_GIVEN = ("org.apache.kafka:", "org.slf4j:", "jakarta.ws.rs:")
# What Kafka's client needs; Connect brings Kafka's client.
_OF_THE_CLIENT = ("com.github.luben:", "at.yawk.lz4:", "org.xerial.snappy:")


def worker_class_path() -> str:
    """Java's class path for a Connect worker. StackError if a jar cannot be had."""
    paths = [*jars.class_path(), *jars.class_path(lock=CONNECT_LOCK, of="Kafka Connect")]
    return os.pathsep.join(str(path) for path in paths)


def plugins(folder: Path) -> Path:
    """Fill a folder for `plugin.path`: Debezium with what it needs, in a class loader of its own, as it is meant to be
    installed. Its versions of shared libraries are not Connect's. StackError if a jar cannot be had."""
    plugin = folder / "debezium-connector-postgres"
    plugin.mkdir(parents=True, exist_ok=True)
    for jar in jars.class_path(lock=DEBEZIUM_LOCK, of="Debezium"):
        link = plugin / jar.name
        link.unlink(missing_ok=True)
        link.symlink_to(jar)
    return folder


def write_locks() -> None:
    """Resolve and pin; Connect's without what Kafka's own lock has already."""
    with jars.maven() as context:
        there = {jar.coordinate.rpartition(":")[0] for jar in jars.locked_jars()}
        connect = [a for a in jars.needed_by(context, CONNECT) if f"{a.groupId}:{a.artifactId}" not in there]
        jars.pin(connect, CONNECT_LOCK, __spec__.name)
        debezium = [
            artifact
            for artifact in jars.needed_by(context, DEBEZIUM)
            if not f"{artifact.groupId}:".startswith(_GIVEN + _OF_THE_CLIENT)
        ]
        jars.pin(debezium, DEBEZIUM_LOCK, __spec__.name)


if __name__ == "__main__":
    write_locks()
