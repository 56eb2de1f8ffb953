"""Reading the journal: one notification's events, its standing and its explanation.

The functions here open a connection each; `EVENTS_BY_ID` and the like, with `events_of`, serve who has one already.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from psycopg.rows import TupleRow, tuple_row

from relay.journal.events import COLUMNS
from relay.journal.explain import Explanation, explanation
from relay.journal.status import Happened, Status, fold
from schemas.records import DeliveryEvent, EventType, PlannedStep

_FIELDS = COLUMNS[:-2]
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM rung.delivery_event WHERE "  # noqa: S608 - our own column names
_ORDER = " ORDER BY at, kafka_offset"

EVENTS_BY_ID = _SELECT + "notification_id = %s" + _ORDER
"""All events of one notification; one value, its id."""
ID_BY_KEY = """
SELECT notification_id FROM rung.delivery_event
WHERE type = 'rung.notification.accepted'
  AND rung.dedup_hash(recipient, dedup_key) = rung.dedup_hash(%(recipient)s, %(dedup_key)s)
  AND recipient = %(recipient)s AND dedup_key = %(dedup_key)s
ORDER BY at DESC LIMIT 1
"""
"""The id of the notification last accepted with a recipient and a dedup key."""


def status(conninfo: str, notification_id: UUID) -> Status | None:
    """Where a notification stands; None if the journal does not know it.

    Raises:
        psycopg.Error: the database cannot be read.
    """
    return fold(load(conninfo, notification_id))


def explain(conninfo: str, notification_id: UUID, recipient: str | None = None) -> Explanation | None:
    """What happened to a notification and why, in plain words; None if the journal does not know it, or knows it as
    another recipient's.

    Raises:
        psycopg.Error: the database cannot be read.
    """
    return explanation(load(conninfo, notification_id, recipient))


def find(conninfo: str, recipient: str, dedup_key: str) -> UUID | None:
    """The id of the notification that was last accepted with this recipient and dedup key.

    Raises:
        psycopg.Error: the database cannot be read.
    """
    if "\0" in recipient + dedup_key:
        return None
    with psycopg.connect(conninfo, row_factory=tuple_row) as connection:
        row = connection.execute(ID_BY_KEY, {"recipient": recipient, "dedup_key": dedup_key}).fetchone()
    return row[0] if row else None


def load(conninfo: str, notification_id: UUID, recipient: str | None = None) -> list[Happened]:
    """The events of one notification, in their order; see `events_of`.

    Raises:
        psycopg.Error: the database cannot be read.
    """
    with psycopg.connect(conninfo, row_factory=tuple_row) as connection:
        return events_of(connection.execute(EVENTS_BY_ID, (notification_id,)).fetchall(), recipient)


def events_of(rows: Iterable[TupleRow], recipient: str | None = None) -> list[Happened]:
    """Rows of `EVENTS_BY_ID` as events: those of `recipient`, or else of whoever had the id first. A service may have
    given one id for two people, and nobody may be told of the other. A type of a newer release is left out."""
    known = {member.value: member for member in EventType}
    found = []
    for row in rows:
        values: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
        kind = known.get(values.pop("type"))
        del values["event_id"]
        if kind is not None:
            steps = values.pop("steps")
            plan = None if steps is None else msgspec.convert(steps, tuple[PlannedStep, ...])
            found.append(Happened(type=kind, event=DeliveryEvent(steps=plan, **values)))
    if recipient is None and found:
        recipient = next((one for one in found if one.type is EventType.ACCEPTED), found[0]).event.recipient
    return [one for one in found if one.event.recipient == recipient]
