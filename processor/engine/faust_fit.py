"""Whether the installed Faust is one that the engine fits: exact releases, and each private name that it leans on."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from processor.engine.port import EngineError

RELEASES: Mapping[str, str] = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}
PRIVATE: Mapping[str, tuple[str, ...]] = {
    "faust.app.base:App": ("_new_transport", "_on_partitions_revoked", "_on_partitions_assigned", "_fetcher"),
    "faust.app.base:BootStrategy": ("enable_kafka_producer",),
    "faust.stores.memory:Store": ("_clear",),
    "faust.stores.rocksdb:Store": ("_db_for_partition", "partition_path", "offset_key"),
    "faust.tables.manager:TableManager": ("_recovery", "recovery"),
    "faust.tables.recovery:Recovery": (
        "_restart_recovery",
        "_slurp_changelogs",
        "_publish_stats",
        "_set_recovery_started",
        "_generation_id",
        "_wait",
        "on_recovery_completed",
        "signal_recovery_start",
    ),
    "faust.transport.consumer:Consumer": (
        "_drain_messages",
        "commit",
        "on_partitions_revoked",
        "perform_seek",
        "verify_event_path",
        "wait_empty",
    ),
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread": ("_ensure_consumer", "on_partitions_assigned"),
    "faust.transport.drivers.aiokafka:Consumer": ("_new_consumer_thread",),
    "faust.transport.drivers.aiokafka:Transport": ("Consumer",),
    "aiokafka:AIOKafkaConsumer": ("assignment", "getmany", "pause"),
    "aiokafka.consumer.group_coordinator:GroupCoordinator": ("_on_join_prepare", "ensure_active_group"),
    "mode.threads:ServiceThread": ("Worker",),
}
"""By class, the names that the engine overrides or calls. A release that has lost one would go on without what it is
there for, and say nothing."""


def check() -> None:
    """Refuse a Faust that the engine does not fit.

    Raises:
        EngineError: it is not installed, or not in this release, or it lacks a name; the message says what to do.
    """
    wrong = []
    for package, wanted in RELEASES.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            raise EngineError(
                f"the engine faust needs {package}, which is not installed: pip install 'rung[faust]'"
            ) from None
        if found != wanted:
            wrong.append(f"{package} {found} instead of {wanted}")
    if wrong:
        raise EngineError(
            f"the engine faust leans on private names of exact releases, and found {', '.join(wrong)}: "
            "pip install 'rung[faust]'"
        )
    if missing := missing_names(PRIVATE):
        raise EngineError(f"the engine faust does not fit the Faust that is installed: it has no {', '.join(missing)}")


def missing_names(names: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Which of the names of classes do not exist."""
    missing = []
    for place, wanted in names.items():
        module, _, name = place.partition(":")
        owner = getattr(importlib.import_module(module), name, None)
        known = set(dir(owner)) | set(getattr(owner, "__annotations__", ()))
        missing += [f"{place}.{one}" for one in wanted if one not in known]
    return missing
