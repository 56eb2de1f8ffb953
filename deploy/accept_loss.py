"""`rung accept-loss`: go on without records that are gone. The one command that moves positions, and only these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.needs import READERS, needs
from deploy.preflight import REQUEST_SECONDS, Needs, lost, stored_positions
from deploy.probes import quiet_admin
from deploy.refusals import Loss, RefusedError
from deploy.settings import Settings


@dataclass(frozen=True)
class Accepted:
    """What one service goes on without."""

    service: str
    losses: Sequence[Loss]
    state: str | None = None
    """The name of the changelog, where the state itself is gone."""


def find(settings: Settings) -> list[Accepted]:
    """Everything that is gone, by service; looks and writes nothing. KafkaException, psycopg.Error: no answer."""
    found = []
    for service in READERS:
        need = needs(service, settings)
        admin = quiet_admin(need.kafka, REQUEST_SECONDS)
        positions = stored_positions(need, admin)
        state = need.changelog if any(positions.values()) and _is_missing(admin, need.changelog) else None
        losses = lost(need, admin, positions)
        if losses or state:
            found.append(Accepted(service, losses, state))
    return found


def accept(settings: Settings, found: Sequence[Accepted]) -> None:
    """Move each position to the first record that there is, and begin a state that is gone anew.

    Raises:
        RefusedError: a service is running, so its positions are its own.
        KafkaException, psycopg.Error: a server refuses.
    """
    for item in found:
        need = needs(item.service, settings)
        if need.journal:
            _move_journal(need, item.losses)
        elif item.losses:
            _move_group(need, item.losses)
        if item.state is not None:
            _begin_state(settings)


def _is_missing(admin: AdminClient, topic: str | None) -> bool:
    return topic is not None and topic not in admin.list_topics(timeout=REQUEST_SECONDS).topics


def _move_group(need: Needs, losses: Sequence[Loss]) -> None:
    admin = quiet_admin(need.kafka, REQUEST_SECONDS)
    begins = [TopicPartition(loss.topic, loss.partition, loss.begin) for loss in losses]
    wanted = ConsumerGroupTopicPartitions(str(need.group), begins)
    try:
        moved = admin.alter_consumer_group_offsets([wanted], request_timeout=REQUEST_SECONDS)[need.group].result(
            REQUEST_SECONDS + 1
        )
    except KafkaException as error:
        raise RefusedError(
            f"the positions of {need.group} cannot be moved ({error.args[0].name()}): stop every {need.service} "
            "process and wait ten seconds, until Kafka takes them for gone"
        ) from None
    errors = [at.error for at in moved.topic_partitions if at.error is not None]
    if errors:
        raise RefusedError(f"the positions of {need.group} cannot be moved ({errors[0].name()})")


def _move_journal(need: Needs, losses: Sequence[Loss]) -> None:
    with psycopg.connect(need.database_url) as connection:
        for loss in losses:
            connection.execute(
                "UPDATE rung.journal_offset SET next_offset = %s, updated_at = now() "
                "WHERE topic = %s AND partition = %s AND next_offset = %s",
                (loss.begin, loss.topic, loss.partition, loss.position),
            )


def _begin_state(settings: Settings) -> None:
    from processor.engine.changelog import ensure_changelog
    from processor.engine.config import ProcessorConfig
    from schemas.topics import PROCESSOR_INPUTS

    config = ProcessorConfig(kafka=settings.client, ladders={}, state_dir=settings.state_dir, naming=settings.naming)
    ensure_changelog(config, map(settings.naming, PROCESSOR_INPUTS))
