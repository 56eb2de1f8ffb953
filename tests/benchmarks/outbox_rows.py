"""Rows of the outbox for its benchmarks: the same in the outbox and in a plain table for the baseline."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
from confluent_kafka import Consumer, TopicPartition

from tests.benchmarks.bench import Bench
from tests.support import postgres

KIND = "payment_action_required"
PAYLOAD_BYTES = 250
RECIPIENTS = 20_000
PER_TRANSACTION = 100
BARE_TABLE = """
CREATE TABLE bare_outbox (
    id         bigserial   PRIMARY KEY,
    event_id   uuid        NOT NULL DEFAULT gen_random_uuid(),
    key        text        NOT NULL,
    type       text        NOT NULL,
    payload    jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
# Numbers of equal width, so that each payload has the same bytes; `dedup_key` counts up.
_PAYLOADS = f"""
SELECT recipient, jsonb_build_object(
    'notification_id', rung.notification_id(recipient, dedup_key), 'recipient', recipient, 'kind', '{KIND}',
    'dedup_key', dedup_key, 'data', jsonb_build_object('text', repeat('x', %(pad)s))) AS payload
FROM (SELECT 'recipient-' || lpad((i %% {RECIPIENTS})::text, 6, '0') AS recipient, lpad(i::text, 9, '0') AS dedup_key
      FROM generate_series(%(first)s::int, %(last)s::int) AS i) AS numbered
"""
_BOTH = f"""
WITH rows AS MATERIALIZED ({_PAYLOADS}), bare AS (
    INSERT INTO bare_outbox (key, type, payload) SELECT recipient, 'rung.notify', payload FROM rows
)
INSERT INTO rung.outbox (aggregatetype, aggregateid, type, payload)
SELECT 'notifications', recipient, 'rung.notify', payload FROM rows
"""
_OUTBOX = f"""
INSERT INTO rung.outbox (aggregatetype, aggregateid, type, payload)
SELECT 'notifications', recipient, 'rung.notify', payload FROM ({_PAYLOADS}) AS rows
"""


@contextlib.contextmanager
def filled(bench: Bench, rows: int) -> Iterator[str]:
    """A database with so many rows waiting in `rung.outbox`, in transactions of 100, and the same in `bare_outbox`."""
    with bench.database([KIND]) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(BARE_TABLE)
        fill(url, 1, rows, bare=True)
        yield url


def fill(url: str, first: int, last: int, *, bare: bool = False) -> None:
    """Write the rows of these numbers to `rung.outbox`, in transactions of 100; and to `bare_outbox` if `bare`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        pad = PAYLOAD_BYTES - _size(connection, 0)
        for start in range(first, last + 1, PER_TRANSACTION):
            numbers = {"first": start, "last": min(last, start + PER_TRANSACTION - 1), "pad": pad}
            connection.execute(_BOTH if bare else _OUTBOX, numbers)
        assert _size(connection, pad) == PAYLOAD_BYTES


def _size(connection: psycopg.Connection[tuple[object, ...]], pad: int) -> int:
    query = f"SELECT octet_length(payload::text) FROM ({_PAYLOADS}) AS p"
    row = connection.execute(query, {"first": 1, "last": 1, "pad": pad}).fetchone()
    assert row is not None
    return int(str(row[0]))


@contextlib.contextmanager
def copy_of(bench: Bench, url: str) -> Iterator[str]:
    """A copy of a database to work on; dropped afterwards."""
    server = bench.stack.postgres.url("postgres")
    copy = postgres.create_database(server, urlsplit(url).path.removeprefix("/"))
    try:
        yield copy
    finally:
        postgres.drop_database(server, copy)


def faults(bench: Bench, topic: str, rows: int) -> dict[str, int]:
    """What a drained topic says of its relay: rows that are missing, repeated, or behind a later one of their
    recipient. Repeats count as such and not as out of order."""
    last: dict[bytes, int] = {}
    seen = bytearray(rows + 1)
    found = {"missing": 0, "repeated": 0, "out of order": 0}
    for key, number in _read(bench, topic):
        if seen[number]:
            found["repeated"] += 1
            continue
        seen[number] = 1
        found["out of order"] += number < last.get(key, 0)
        last[key] = max(number, last.get(key, 0))
    found["missing"] = rows - sum(seen)
    return found


def _read(bench: Bench, topic: str) -> Iterator[tuple[bytes, int]]:
    consumer = Consumer({"bootstrap.servers": bench.kafka, "group.id": "not-used", "enable.auto.commit": False})
    try:
        ends = {place: end for place, end in bench.offsets([topic]).items() if end}
        consumer.assign([TopicPartition(name, partition, 0) for name, partition in ends])
        left = sum(ends.values())
        while left:
            for message in consumer.consume(10_000, 1.0):
                assert message.error() is None, message.error()
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                at = value.index(b'"dedup_key": "') + 14
                yield key, int(value[at : at + 9])
                left -= 1
    finally:
        consumer.close()
