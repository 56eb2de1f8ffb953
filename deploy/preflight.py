"""Before a service starts: what it needs is there, and starting loses nothing. It looks and changes nothing, but that
it ends the transaction that an earlier process of the same instance left open.

A server that does not answer is waited for; only an answer can refuse. The judgements are in `refusals`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import psycopg
import structlog
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from deploy import refusals
from deploy.health import Health
from deploy.instances import Taken, take
from deploy.ladder_guard import open_of_dropped_kinds
from deploy.probes import may_pass, quiet_admin, quiet_consumer, quiet_producer
from deploy.refusals import Loss, Place, RefusedError
from relay.outbox.migrations import MigrationError, check_schema
from relay.transactions import end_predecessor

REQUEST_SECONDS = 5.0
FIRST_WAIT_SECONDS = 0.2
MOST_WAIT_SECONDS = 5.0
_NOT_ALLOWED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
_log = structlog.get_logger("rung.preflight")


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What must be true before a service runs. Topics and groups by their names on the cluster."""

    service: str
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    topics: tuple[str, ...] = ()
    """All that it reads or writes; they must have the same number of partitions."""
    group: str | None = None
    reads: tuple[str, ...] = ()
    """What it reads from committed positions."""
    in_transactions: frozenset[str] = frozenset()
    """Of these: topics that are written in transactions alone."""
    changelog: str | None = None
    database_url: str = field(default="", repr=False)
    kinds: frozenset[str] | None = None
    """The kinds that its configuration has; where the journal can be asked, no open notification may have another."""
    journal_url: str = field(default="", repr=False)
    """Where the journal can be asked for open notifications; empty if nowhere."""
    journal: bool = False
    """Whether its positions are the journal's, in the database."""
    transactional_id: str | None = None
    """In whose transactions it commits them."""
    instance: tuple[str, ...] | None = None
    """What no other running process may have the same of."""
    waits: bool = True
    """Whether a server that does not answer is waited for; a service that answers 503 meanwhile does not wait."""


def passes(needs: Needs, stop: threading.Event, health: Health) -> bool:
    """Look at everything; False if told to stop before the servers were there.

    Raises:
        RefusedError: starting would lose data, or cannot work.
    """
    if needs.instance is not None:
        try:
            take(needs.instance)
        except Taken as taken:
            raise RefusedError(
                f"{taken} runs as {needs.service} with the instance id {needs.instance[-1]!r} already: give each "
                "replica a RUNG_INSTANCE_ID of its own"
            ) from None
    looks: list[Callable[[], None]] = []
    if needs.database_url:
        looks.append(lambda: look_at_database(needs))
    if needs.kinds is not None and needs.journal_url:
        looks.append(partial(look_at_kinds, needs.journal_url, needs.kinds))
    if needs.topics:
        admin = quiet_admin(needs.kafka, REQUEST_SECONDS)
        looks.append(lambda: look_at_cluster(needs, admin))
    return all(_patiently(look, needs, stop, health) for look in looks)


def _patiently(look: Callable[[], None], needs: Needs, stop: threading.Event, health: Health) -> bool:
    wait = FIRST_WAIT_SECONDS
    while not stop.is_set():
        health.beat()
        try:
            look()
            return True
        except psycopg.OperationalError as error:
            _log.warning("postgres_away", error=type(error).__name__)
        except (KafkaException, TimeoutError) as error:
            if not may_pass(error):
                raise
            _log.warning("kafka_away", error=str(error))
        if not needs.waits:
            return True
        stop.wait(wait)
        wait = min(2 * wait, MOST_WAIT_SECONDS)
    return False


def look_at_database(needs: Needs) -> None:
    """Refuse a schema that is older or newer than the code.

    Raises:
        RefusedError: it is. psycopg.Error: the database cannot be asked.
    """
    try:
        check_schema(needs.database_url)
    except MigrationError as error:
        raise RefusedError(str(error)) from None


def look_at_kinds(journal_url: str, kinds: frozenset[str]) -> None:
    """Refuse kinds without one that was published, not given up since, and that open notifications have. A service that
    needs Kafka alone starts without the journal as well, and then it is not asked.

    Raises:
        RefusedError: there is such a kind.
    """
    try:
        with psycopg.connect(journal_url, connect_timeout=round(REQUEST_SECONDS)) as connection:
            _refuse(refusals.dropped_kinds(open_of_dropped_kinds(connection, kinds)))
    except psycopg.Error as error:
        _log.warning("open_kinds_unknown", error=type(error).__name__)


def look_at_cluster(needs: Needs, admin: AdminClient) -> None:
    """Refuse topics that are missing or do not fit each other, a bad changelog, and positions below the first record.

    Raises:
        RefusedError: one of these. KafkaException, psycopg.Error: a server cannot be asked.
    """
    _end_predecessor(needs, admin)
    # The positions come first: a replica that starts beside this one may create the changelog and commit in between.
    positions = stored_positions(needs, admin)
    counts = {name: len(found.partitions) for name, found in admin.list_topics(timeout=REQUEST_SECONDS).topics.items()}
    _refuse(refusals.missing_topics(needs.topics, counts))
    _refuse(refusals.uneven_topics(needs.topics, counts))
    if needs.changelog is not None:
        cleanup = cleanup_policy(admin, needs.changelog) if needs.changelog in counts else None
        committed = any(position > 0 for position in positions.values())
        _refuse(refusals.bad_changelog(needs.changelog, needs.reads, counts, cleanup, committed=committed))
    _refuse(refusals.lost_records(needs.group or needs.service, lost(needs, admin, positions)))


def _end_predecessor(needs: Needs, admin: AdminClient) -> None:
    if needs.transactional_id is None or needs.group is None:
        return
    topics = admin.list_topics(timeout=REQUEST_SECONDS).topics
    read = next((name for name in needs.reads if name in topics), None)
    if read is None:
        return
    producer = quiet_producer(needs.kafka, needs.transactional_id, REQUEST_SECONDS)
    consumer = quiet_consumer(needs.kafka, needs.group, REQUEST_SECONDS)
    try:
        end_predecessor(producer, consumer, (read, 0), REQUEST_SECONDS)
    finally:
        consumer.close()


def lost(needs: Needs, admin: AdminClient, positions: Mapping[Place, int]) -> list[Loss]:
    """Where the service would go on after records that are gone. KafkaException: the cluster cannot be asked."""
    return refusals.losses(positions, _begins(admin, positions), needs.in_transactions)


def stored_positions(needs: Needs, admin: AdminClient) -> dict[Place, int]:
    """Where the service goes on, of what it reads. KafkaException, psycopg.Error: a server cannot be asked."""
    if needs.journal:
        with psycopg.connect(needs.database_url, connect_timeout=round(REQUEST_SECONDS)) as connection:
            # 0 is the beginning, wherever that is: nothing was read yet.
            rows = connection.execute(
                "SELECT topic, partition, next_offset FROM rung.journal_offset "
                "WHERE topic = ANY(%s) AND next_offset > 0",
                (list(needs.reads),),
            ).fetchall()
        return {(str(topic), int(partition)): int(offset) for topic, partition, offset in rows}
    if needs.group is None:
        return {}
    return _committed(needs.kafka, needs.group, needs.reads, admin)


def _committed(kafka: Mapping[str, str], group: str, reads: Sequence[str], admin: AdminClient) -> dict[Place, int]:
    """What a group has committed. A consumer asks: an admin client's `list_consumer_group_offsets` ends the whole
    process by SIGSEGV when the group's coordinator moves or loads meanwhile (librdkafka issue 5040)."""
    topics = admin.list_topics(timeout=REQUEST_SECONDS).topics
    wanted = [TopicPartition(name, number) for name in reads if name in topics for number in topics[name].partitions]
    if not wanted:
        return {}
    consumer = quiet_consumer(kafka, group, REQUEST_SECONDS)
    try:
        found = consumer.committed(wanted, timeout=REQUEST_SECONDS)
    finally:
        consumer.close()
    for at in found:
        if at.error is not None:
            raise KafkaException(at.error)
    return {(at.topic, at.partition): at.offset for at in found if at.offset >= 0}


def cleanup_policy(admin: AdminClient, topic: str) -> str | None:
    """A topic's `cleanup.policy`; None if we may not look."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        found = admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[resource].result(
            REQUEST_SECONDS + 1
        )
    except KafkaException as error:
        if error.args[0].code() in _NOT_ALLOWED:
            _log.warning("topic_settings_not_readable", topic=topic)
            return None
        raise
    return str(found["cleanup.policy"].value)


def _begins(admin: AdminClient, places: Mapping[Place, int]) -> dict[Place, int]:
    if not places:
        return {}
    wanted = {TopicPartition(topic, partition): OffsetSpec.earliest() for topic, partition in places}
    futures = admin.list_offsets(wanted, request_timeout=REQUEST_SECONDS)
    return {(at.topic, at.partition): f.result(REQUEST_SECONDS + 1).offset for at, f in futures.items()}


def _refuse(reason: str | None) -> None:
    if reason is not None:
        raise RefusedError(reason)
