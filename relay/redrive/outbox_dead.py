"""Rows that the relay set aside go back into the outbox, where the relay could publish them today."""

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import psycopg

from relay.outbox.records import Row, outgoing
from relay.redrive.config import RedriveConfig
from relay.redrive.judgement import REMEMBERED_MS, Refusal
from relay.redrive.service import Summary
from schemas.errors import DecodeError
from schemas.records import EraseRecipient, Notify, PutRecipient

_ROWS = """
SELECT seq, id::text, aggregatetype, aggregateid, type, bucket,
       floor(extract(epoch FROM created_at) * 1000)::bigint, octet_length(payload::text), payload::text, reason
FROM rung.outbox_dead
WHERE (%(since)s::bigint IS NULL OR at >= to_timestamp(%(since)s / 1000.0))
  AND (%(recipient)s::text IS NULL OR aggregateid = %(recipient)s)
ORDER BY seq
"""
# The time stays that of the request: how old it is decides whether it may still go back.
_BACK = """
WITH gone AS (DELETE FROM rung.outbox_dead WHERE seq = %s RETURNING *)
INSERT INTO rung.outbox (id, aggregatetype, aggregateid, type, payload, created_at)
SELECT id, aggregatetype, aggregateid, type, payload, created_at FROM gone
"""


class _Dead(NamedTuple):
    row: Row
    reason: str


def put_back(config: RedriveConfig, database_url: str, now: int, stop: threading.Event) -> Summary:
    """Put rows back, or count them; `now` is in milliseconds since the epoch. Each in a transaction of its own, no
    faster than the rate, until `stop` is set.

    Raises:
        psycopg.Error: the database cannot be reached, or the user may not change these tables. Some may be back.
    """
    summary = Summary(config.dry_run)
    with psycopg.connect(database_url, connect_timeout=10, autocommit=True) as connection:
        for dead in _rows(connection, config):
            if stop.is_set():
                summary.stopped = True
                break
            if (config.reasons and dead.reason not in config.reasons) or (
                config.topics and dead.row.aggregatetype not in config.topics
            ):
                summary.left_out += 1
                continue
            refused = _objection(dead.row, now)
            if refused is not None:
                summary.refused[dead.reason, *refused] += 1
                continue
            summary.back[dead.reason] += 1
            if not config.dry_run:
                connection.execute(_BACK, (dead.row.seq,))
                stop.wait(1 / config.rate)
    return summary


def _rows(connection: psycopg.Connection[Any], config: RedriveConfig) -> Iterator[_Dead]:
    values = {"since": config.since, "recipient": config.recipient}
    for *fields, reason in connection.execute(_ROWS, values).fetchall():
        yield _Dead(Row._make((0, *fields, 1)), reason)


def _objection(row: Row, now: int) -> tuple[Refusal, str] | None:
    try:
        record = outgoing(row)
    except DecodeError as error:
        return Refusal.STILL_BAD, error.reason
    if row.type in {PutRecipient.TYPE, EraseRecipient.TYPE}:
        return Refusal.WRITE_AGAIN, ""
    if row.type == Notify.TYPE:
        expires_at = msgspec.json.decode(record.value, type=Notify).expires_at
        if expires_at is not None and expires_at <= now:
            return Refusal.EXPIRED, ""
        if now - row.created_ms >= REMEMBERED_MS:
            return Refusal.TOO_OLD, ""
    if len(record.key) + len(record.value) + 1_000 > record.topic.max_message_bytes:
        return Refusal.TOO_LARGE, ""
    return None


def added(one: Summary, other: Summary) -> Summary:
    """Two summaries as one."""
    return Summary(
        one.dry_run,
        Counter(one.back) + Counter(other.back),
        Counter(one.refused) + Counter(other.refused),
        one.done_before + other.done_before,
        one.left_out + other.left_out,
        one.stopped or other.stopped,
    )
