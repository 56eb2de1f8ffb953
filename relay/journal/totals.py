"""Counts over the journal: exact, each event once, whatever was restarted meanwhile."""

from collections.abc import Iterable
from uuid import UUID

import msgspec
import psycopg
from psycopg.rows import TupleRow, tuple_row

from relay.journal.outcomes import concluded_as, depth_of, ends
from schemas.reasons import Reason
from schemas.records import DeliveryEvent, EventType

_COUNTS = """
SELECT kind, type, reason, channel, depth, CASE WHEN next_due_at IS NOT NULL THEN 0 END, count(*)
FROM rung.delivery_event WHERE at >= %s GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1
"""


class KindTotals(msgspec.Struct, kw_only=True):
    """Counts of one kind over the events that the journal holds."""

    kind: str
    accepted: int = 0
    ended: dict[str, int] = {}
    """End (`resolved`, `expired`, ...) to number of notifications."""
    resolved_late: int = 0
    """People who acted after the ladder had ended."""
    in_flight: int = 0
    """Messages that left after their notification had ended: the call was under way."""
    duplicates: int = 0
    conflicts: int = 0
    sent: dict[str, int] = {}
    """Channel to number of steps sent."""
    steps: dict[str, int] = {}
    """How steps were concluded: `sent`, `rejected`, `failed`, `held`, `suppressed`."""
    retried: int = 0
    """Attempts that failed or stayed unknown, and were to be tried again."""
    promoted: int = 0
    depth: dict[int, int] = {}
    """Escalation depth at which people acted to number of notifications."""

    @property
    def concluded(self) -> int:
        """Steps concluded in any way: what the cancellation ratio is a share of."""
        return sum(self.steps.values())

    @property
    def cancelled(self) -> int:
        """Steps concluded without a call."""
        return self.steps.get("suppressed", 0)


def totals(conninfo: str, since: int = 0) -> list[KindTotals]:
    """Counts per kind over the events from `since` (milliseconds) on, ordered by kind. It reads all of them.

    Raises:
        psycopg.Error: the database cannot be read.
    """
    with psycopg.connect(conninfo, row_factory=tuple_row) as connection:
        return count(connection.execute(_COUNTS, (since,)).fetchall())


def count(rows: Iterable[TupleRow]) -> list[KindTotals]:
    """Sum up rows of kind, type, reason, channel, depth, whether more is due (0 or None), and number."""
    known = {member.value: member for member in EventType}
    found: dict[str, KindTotals] = {}
    for kind, name, reason, channel, depth, next_due_at, number in rows:
        total = found.setdefault(kind, KindTotals(kind=kind))
        if name in known:
            _add(total, known[name], _like(kind, reason, channel, depth, next_due_at), number)
    return list(found.values())


def _like(kind: str, reason: str, channel: str | None, depth: int | None, next_due_at: int | None) -> DeliveryEvent:
    """An event that stands for all of its group."""
    return DeliveryEvent(
        notification_id=UUID(int=0),
        recipient="",
        kind=kind,
        dedup_key="",
        reason=reason,
        channel=channel,
        depth=depth,
        next_due_at=next_due_at,
        at=0,
    )


def _add(total: KindTotals, kind: EventType, event: DeliveryEvent, number: int) -> None:
    _add_steps(total, kind, event, number)
    if (depth := depth_of(kind, event)) is not None:
        total.depth[depth] = total.depth.get(depth, 0) + number
    if ends(kind, event):
        end = kind.value.rsplit(".", 1)[1]
        total.ended[end] = total.ended.get(end, 0) + number
    match kind:
        case EventType.ACCEPTED:
            total.accepted += number
        case EventType.DUPLICATE:
            total.duplicates += number
        case EventType.CONFLICT:
            total.conflicts += number
        case EventType.TOO_LATE if event.reason == Reason.IN_FLIGHT:
            total.in_flight += number
        case EventType.TOO_LATE:
            total.resolved_late += number


def _add_steps(total: KindTotals, kind: EventType, event: DeliveryEvent, number: int) -> None:
    if (state := concluded_as(kind, event)) is not None:
        total.steps[state.value] = total.steps.get(state.value, 0) + number
    match kind:
        case EventType.STEP_SENT:
            channel = event.channel or ""
            total.sent[channel] = total.sent.get(channel, 0) + number
        case EventType.STEP_FAILED | EventType.STEP_UNKNOWN if event.next_due_at is not None:
            total.retried += number
        case EventType.STEP_PROMOTED:
            total.promoted += number
