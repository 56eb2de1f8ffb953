"""What each service needs before it may start."""

from __future__ import annotations

from collections.abc import Collection

from deploy.preflight import Needs
from deploy.settings import Settings
from processor.delivery.source import GROUP as DELIVER_GROUP
from processor.delivery.source import TOPICS as DELIVER_TOPICS
from processor.engine.config import changelog_name
from processor.engine.config import transactional_id as processor_id
from relay.delays.config import transactional_id as delays_id
from relay.journal.consumer import GROUP as JOURNAL_GROUP
from schemas.topics import (
    CATALOGUE,
    DEAD_LETTERS,
    DELAYS,
    DELIVERIES,
    DELIVERY_EVENTS,
    DUE,
    NOTIFICATIONS,
    OUTCOMES,
    PROCESSOR_INPUTS,
    RECIPIENTS,
    RESOLUTIONS,
    Topic,
)

_TRANSACTIONAL_WRITERS = {"processor", "delayer"}
_ALONE = frozenset({"delays", "processor", "deliver", "journal"})
"""Services whose replicas must have different instance ids."""
_TOPICS: dict[str, tuple[Topic, ...]] = {
    "outbox": (NOTIFICATIONS, RESOLUTIONS),
    "delays": (*DELAYS, DUE, DEAD_LETTERS),
    "processor": (*PROCESSOR_INPUTS, RECIPIENTS, DELIVERIES, DELIVERY_EVENTS, *DELAYS, DUE, DEAD_LETTERS),
    "deliver": (*DELIVER_TOPICS, DEAD_LETTERS),
    "journal": (DELIVERY_EVENTS, DEAD_LETTERS),
    "api": (OUTCOMES,),
}
_READS: dict[str, tuple[Topic, ...]] = {
    "delays": DELAYS,
    "processor": PROCESSOR_INPUTS,
    "deliver": (DELIVERIES,),
    "journal": (DELIVERY_EVENTS,),
}
_GROUPS = {
    "delays": "rung-delays",
    "processor": "rung-processor",
    "deliver": DELIVER_GROUP,
    "journal": JOURNAL_GROUP,
}
_TRANSACTIONAL_IDS = {"delays": delays_id, "processor": processor_id}
READERS = tuple(_READS)
"""Services that go on from a stored position."""


def needs(service: str, settings: Settings, kinds: Collection[str] | None = None) -> Needs:
    """What a service needs, under the names that these settings give; `kinds` are those of its configuration, if it has
    one. SettingsError: a server is not named."""
    naming = settings.naming
    reads = tuple(map(naming, _READS.get(service, ())))
    group = naming.prefix + _GROUPS[service] if service in _GROUPS else None
    return Needs(
        service=service,
        kafka=settings.client,
        topics=tuple(dict.fromkeys(map(naming, _TOPICS[service]))),
        group=group,
        reads=reads,
        in_transactions=frozenset(
            naming(t) for t in CATALOGUE if set(t.written_by.split(", ")) <= _TRANSACTIONAL_WRITERS
        ),
        changelog=changelog_name(group, reads) if service == "processor" and group else None,
        database_url=settings.database if service in ("outbox", "journal", "api") else "",
        kinds=None if kinds is None else frozenset(kinds),
        journal_url=settings.database_url.get_secret_value(),
        journal=service == "journal",
        transactional_id=_TRANSACTIONAL_IDS[service](group, settings.instance_id)
        if group and service in _TRANSACTIONAL_IDS
        else None,
        instance=(settings.kafka, naming.prefix, service, settings.instance_id) if service in _ALONE else None,
        waits=service != "api",
    )
