"""The delivery worker as a service: `run` blocks until it is told to stop."""

import asyncio
import threading

import uvloop
from prometheus_client import CollectorRegistry

from processor.delivery.caller import Caller
from processor.delivery.channels.build import build_adapters
from processor.delivery.config import DeliveryConfig
from processor.delivery.metrics import DeliveryMetrics
from processor.delivery.templates import Templates
from processor.delivery.worker import Worker


def run(config: DeliveryConfig, stop: threading.Event, registry: CollectorRegistry) -> None:
    """Deliver until `stop` is set; then hand back what has not started, let calls in flight finish, and return.

    Raises:
        SourceError: a topic is missing, or the topics have different numbers of partitions.
        KafkaException: Kafka cannot be reached, or the group fenced this member.
        PublishError: an outcome could not be written.
        KeyError, ValueError: a provider's secret is missing or has the wrong form.
    """
    uvloop.run(_run(config, stop, registry))


async def _run(config: DeliveryConfig, stop: threading.Event, registry: CollectorRegistry) -> None:
    metrics = DeliveryMetrics(registry, [(p.name, c) for c, providers in config.channels.items() for p in providers])
    adapters = build_adapters(config.channels, config.secrets)
    try:
        caller = Caller(adapters, Templates(config.templates_dir), metrics)
        await Worker(config, caller, metrics, asyncio.get_running_loop()).run(stop)
    finally:
        for adapter in adapters.values():
            await adapter.close()
