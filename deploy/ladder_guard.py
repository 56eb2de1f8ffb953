"""Whether a new configuration leaves open notifications without what their ladders need, as the journal knows them.

A running ladder keeps the snapshot that it was accepted with, so it goes on without its kind. What it takes from the
configuration at every call is the channel's providers and the template; and a request that is on its way to the
processor needs its kind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import psycopg
from psycopg.rows import TupleRow

from deploy import refusals
from deploy.configuration import Configuration
from deploy.refusals import RefusedError

# Only kinds that were published and are not any more: a drop that was forced once is no news.
_DROPPED = "SELECT name FROM rung.kind WHERE name <> ALL(%s)"
_OPEN_OF = "SELECT kind, count(*) FROM rung.notification WHERE status = 'open' AND kind = ANY(%s) GROUP BY kind"
_OPEN_ON = """
SELECT s.step ->> 'channel', count(DISTINCT e.notification_id)
FROM rung.delivery_event e CROSS JOIN LATERAL jsonb_array_elements(e.steps) AS s(step)
WHERE e.type = 'rung.notification.accepted'
  AND e.expires_at > extract(epoch FROM now()) * 1000
  AND s.step ->> 'channel' <> ALL(%s)
  AND NOT EXISTS (
      SELECT FROM rung.delivery_event d
      WHERE d.notification_id = e.notification_id
        AND (d.type IN ('rung.notification.resolved', 'rung.notification.expired', 'rung.notification.finished',
                        'rung.notification.dead', 'rung.notification.erased')
             OR d.step_no = (s.step ->> 'step_no')::integer
                AND d.type IN ('rung.step.sent', 'rung.step.rejected', 'rung.step.suppressed')))
GROUP BY 1
"""


def guard(database_url: str, configuration: Configuration) -> None:
    """Refuse a configuration that drops a kind or a channel which open notifications use.

    Raises:
        RefusedError: it does; the message counts them.
        psycopg.Error: the database cannot be asked.
    """
    with psycopg.connect(database_url) as connection:
        dropped = open_of_dropped_kinds(connection, configuration.ladders)
        unreachable = _counts(connection, _OPEN_ON, list(configuration.channels))
    reasons = [refusals.dropped_kinds(dropped), refusals.dropped_channels(unreachable)]
    found = [reason for reason in reasons if reason is not None]
    if found:
        raise RefusedError("\n".join(found))


def open_of_dropped_kinds(connection: psycopg.Connection[TupleRow], kinds: Collection[str]) -> Mapping[str, int]:
    """Open notifications by kind, of the published kinds that are not among these."""
    dropped = [name for (name,) in connection.execute(_DROPPED, (list(kinds),)).fetchall()]
    return _counts(connection, _OPEN_OF, dropped) if dropped else {}


def _counts(connection: psycopg.Connection[TupleRow], query: str, names: list[str]) -> dict[str, int]:
    return {str(name): int(count) for name, count in connection.execute(query.encode(), (names,)).fetchall()}
