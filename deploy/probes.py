"""Whether the servers that a service needs are there, asked beside the service's own clients."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

AWAY = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._RESOLVE,
        KafkaError._MSG_TIMED_OUT,
    }
)
"""What librdkafka calls a cluster that does not answer."""
_KAFKA_LOG = logging.getLogger("rung.health.kafka")
# Each failure is told by the probe; the client would tell it once a second for each broker.
_KAFKA_LOG.disabled = True


PASSING = AWAY | {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
}
"""What a cluster says that is starting or moving its leaders; the admin client marks none of these as retriable."""


def may_pass(error: KafkaException | TimeoutError) -> bool:
    """Whether the same question may be answered later."""
    return isinstance(error, TimeoutError) or error.args[0].code() in PASSING or bool(error.args[0].retriable())


def quiet_admin(kafka: Mapping[str, str], seconds: float) -> AdminClient:
    """A client that gives a request up after `seconds`, comes back soon after the cluster does, and logs nothing."""
    return AdminClient({**kafka, **_limits(seconds)}, logger=_KAFKA_LOG)


def quiet_consumer(kafka: Mapping[str, str], group: str, seconds: float) -> Consumer:
    """Like `quiet_admin`, to ask for a group's positions: as long as it subscribes to nothing it is no member."""
    return Consumer({**kafka, **_limits(seconds), "group.id": group, "enable.auto.commit": "false"}, logger=_KAFKA_LOG)


def quiet_producer(kafka: Mapping[str, str], transactional_id: str, seconds: float) -> Producer:
    """Like `quiet_admin`, for transactions that end within `seconds`."""
    limit = _milliseconds(seconds)
    ends = {"transactional.id": transactional_id, "transaction.timeout.ms": limit, "message.timeout.ms": limit}
    return Producer({**kafka, **_limits(seconds), **ends}, logger=_KAFKA_LOG)


def _limits(seconds: float) -> dict[str, str | int]:
    return {"socket.timeout.ms": _milliseconds(seconds), "reconnect.backoff.max.ms": 1_000}


def _milliseconds(seconds: float) -> int:
    # librdkafka takes no less than a second.
    return max(1_000, round(seconds * 1000))


class KafkaProbe:
    """Asks the cluster for its brokers; an answer of any kind is one.

    It asks as a consumer that is no member of anything: the admin client's own question, `describe_cluster`, ends the
    process where the answer comes when the broker has been frozen (an assertion in librdkafka 2.12,
    `rd_kafka_admin_response_parse`).
    """

    def __init__(self, kafka: Mapping[str, str], seconds: float) -> None:
        self._kafka = kafka
        self._seconds = seconds
        self._client: Consumer | None = None

    def __call__(self) -> bool:
        """Whether it answered in time."""
        if self._client is None:
            self._client = quiet_consumer(self._kafka, "rung-health", self._seconds)
        try:
            # About one topic, since a cluster may have very many; that there is no such topic is an answer too.
            self._client.list_topics(_ASKED_FOR, timeout=self._seconds)
        except KafkaException as error:
            return error.args[0].code() not in AWAY
        return True


_ASKED_FOR = "__consumer_offsets"


class PostgresProbe:
    """Opens a connection, which takes a process of the server's that answers."""

    def __init__(self, database_url: str, seconds: float) -> None:
        self._url = database_url
        self._seconds = seconds

    def __call__(self) -> bool:
        """Whether it answered in time; a refusal of ours is an answer."""
        try:
            # libpq takes no less than two seconds.
            with psycopg.connect(
                self._url, connect_timeout=max(2, round(self._seconds)), application_name="rung health"
            ):
                return True
        except psycopg.OperationalError as error:
            return error.sqlstate is not None and not error.sqlstate.startswith(("57P", "53"))
