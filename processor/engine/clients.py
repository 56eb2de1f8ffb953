"""The settings of the processor's Kafka clients, the same whichever engine makes them."""

from typing import Any

from processor.engine.changelog import MAX_RECORD_BYTES
from processor.engine.config import ProcessorConfig
from schemas.topics import PARTITIONER


def reading() -> dict[str, Any]:
    """How inputs are read."""
    return {
        "isolation.level": "read_committed",
        # All partitions share one queue in the client, first come, first served: what lies in it before a resolution
        # is decided before it. So no partition may put much into it at once, however much it has.
        "queued.min.messages": 100,
        "fetch.message.max.bytes": 64 * 1024,
        "queued.max.messages.kbytes": 8 * 1024,
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 100,
    }


def membership(config: ProcessorConfig) -> dict[str, Any]:
    """How an instance takes part in the group."""
    session = round(config.session_seconds * 1000)
    return {
        "group.instance.id": config.member_id,
        "session.timeout.ms": session,
        "heartbeat.interval.ms": session // 3,
        "max.poll.interval.ms": round(config.poll_limit_seconds * 1000),
    }


def writing(config: ProcessorConfig) -> dict[str, Any]:
    """How outputs and the changelog are written."""
    return {
        "partitioner": PARTITIONER,
        "enable.idempotence": True,
        "acks": "all",
        "transactional.id": config.transactional_id,
        "transaction.timeout.ms": round(config.transaction_seconds * 1000),
        "message.max.bytes": MAX_RECORD_BYTES,
        "compression.type": "lz4",
        # A transaction that follows another closely is answered "concurrent transactions" for some milliseconds; with
        # the default of 100 ms it would stand still for as long.
        "retry.backoff.ms": 5,
    }
