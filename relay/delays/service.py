"""The delayer as a service: sessions on Kafka, one after another until told to stop."""

import threading
import time

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from relay.delays.config import DelaysConfig
from relay.delays.metrics import DelaysMetrics
from relay.delays.session import Session
from relay.delays.transactions import FencedError, SessionLostError
from schemas.topics import DEAD_LETTERS, DELAYS, DUE

log = structlog.get_logger("rung.delays")

FIRST_BACKOFF_SECONDS = 0.2
MOST_BACKOFF_SECONDS = 5.0
LASTED_SECONDS = 30.0
"""A session that lasted this long was a good one: the wait before the next starts small again."""

FENCED_SECONDS = 60.0
"""A session that is fenced is followed by another, and one that is fenced so soon after that by none: the first fence
may be of our own making (a member whose request to join was lost with a broker asks again, and is then held for two);
two processes with one instance id fence each other in turn, and the older one is the first that ends."""


class FatalError(RuntimeError):
    """This process cannot go on, and trying again would not help: another runs with its instance id."""


def run(config: DelaysConfig, stop: threading.Event, registry: CollectorRegistry) -> None:
    """Forward waiting records until `stop` is set.

    Raises:
        FatalError: another process runs with this instance id.
    """
    metrics = DelaysMetrics(registry)
    backoff = FIRST_BACKOFF_SECONDS
    fenced_at = -FENCED_SECONDS
    while _topics_exist(config, stop):
        began = time.monotonic()
        try:
            _session(config, stop, metrics)
        except SessionLostError as error:
            if stop.is_set():
                break
            metrics.sessions_lost.inc()
            if time.monotonic() - began >= LASTED_SECONDS:
                backoff = FIRST_BACKOFF_SECONDS
            log.warning("session_lost", code=error.code, retry_in_seconds=backoff)
            stop.wait(backoff)
            backoff = min(2 * backoff, MOST_BACKOFF_SECONDS)
        except FencedError as error:
            metrics.sessions_lost.inc()
            if time.monotonic() - fenced_at < FENCED_SECONDS:
                log.error("fatal_kafka_error", error=str(error), instance_id=config.instance_id)
                raise FatalError(f"another process runs with instance id {config.instance_id!r}") from error
            fenced_at = time.monotonic()
            log.warning("session_fenced", error=str(error), instance_id=config.instance_id)
    log.info("delays_stopped")


def _session(config: DelaysConfig, stop: threading.Event, metrics: DelaysMetrics) -> None:
    session = Session(config, stop, metrics)
    try:
        session.run()
    except KafkaException as error:
        raise SessionLostError(error.args[0].name()) from error
    finally:
        session.close()


def _topics_exist(config: DelaysConfig, stop: threading.Event) -> bool:
    """Wait until the topics are there; False if told to stop before. A consumer would notice a new topic after minutes,
    and a producer would take a missing one for a fault."""
    needed = {config.naming(topic) for topic in (*DELAYS, DUE, DEAD_LETTERS)}
    admin = AdminClient(dict(config.kafka))
    backoff = FIRST_BACKOFF_SECONDS
    while not stop.is_set():
        config.beat()
        try:
            missing = needed - admin.list_topics(timeout=2.0).topics.keys()
            if not missing:
                return True
            log.warning("topics_missing", topics=sorted(missing))
        except KafkaException as error:
            log.warning("kafka_away", code=error.args[0].name())
        stop.wait(backoff)
        backoff = min(2 * backoff, MOST_BACKOFF_SECONDS)
    return False
