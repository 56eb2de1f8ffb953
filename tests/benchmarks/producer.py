"""What a notification costs the service that asks for it: `rung.notify`, beside an INSERT as plain as can be."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, LiteralString

import psycopg

from tests.benchmarks.bench import Bench
from tests.benchmarks.harness import Must, Row, take_turns
from tests.benchmarks.outbox_rows import BARE_TABLE, KIND

CALLS = 5_000
PER_TRANSACTION = 20
DATA = json.dumps({"text": "x" * 80})
PAYLOAD = json.dumps({"notification_id": "0" * 32, "kind": KIND, "data": {"text": "x" * 80}})
NOTIFY: LiteralString = "SELECT rung.notify(%s, %s, %s::jsonb, %s)"
RESOLVE: LiteralString = "SELECT rung.resolve(%s, %s, %s)"
PLAIN: LiteralString = "INSERT INTO bare_outbox (key, type, payload) VALUES (%s, %s, %s::jsonb)"
# The server's part alone: no client, no network, no parsing, one transaction.
_LOOP = "DO $$ BEGIN FOR i IN 1..{calls} LOOP {statement}; END LOOP; END $$"
_NOTIFY_INSIDE = f"PERFORM rung.notify('recipient-' || i % 1000, '{KIND}', '{DATA}', i::text)"
_PLAIN_INSIDE = (
    f"INSERT INTO bare_outbox (key, type, payload) VALUES ('recipient-' || i % 1000, 'rung.notify', "
    f"jsonb_build_object('recipient', 'recipient-' || i % 1000, 'kind', '{KIND}', 'dedup_key', i::text, "
    f"'data', '{DATA}'::jsonb))"
)


def cost(bench: Bench) -> Iterable[Row]:
    """The time of a call in a transaction of its own and among others, and of the server's part alone."""
    calls = bench.size(CALLS, 500)
    notes = "baseline: INSERT of the same row into a plain table with a key, over the same connection"
    with bench.database([KIND]) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BARE_TABLE)
        for what, size in (("own transaction", 1), (f"{PER_TRANSACTION} in a transaction", PER_TRANSACTION)):
            plain, notify, resolve = take_turns(
                bench.rounds,
                partial(_time, connection, PLAIN, calls, size),
                partial(_time, connection, NOTIFY, calls, size),
                partial(_time, connection, RESOLVE, calls, size),
            )
            for name, found in (("notify", notify), ("resolve", resolve)):
                yield Row(
                    "producer", f"rung.{name}, {what}", "µs", tuple(found), tuple(plain), "lower", Must(most=2), notes
                )
        plain, notify = take_turns(
            bench.rounds,
            lambda: _time_inside(connection, _PLAIN_INSIDE, calls),
            lambda: _time_inside(connection, _NOTIFY_INSIDE, calls),
        )
        notes = "both called from PL/pgSQL: neither client nor commit in it"
        yield Row("producer", "rung.notify, the server's part", "µs", tuple(notify), tuple(plain), "lower", notes=notes)


def _time(connection: psycopg.Connection[Any], statement: LiteralString, calls: int, per_transaction: int) -> float:
    """Microseconds of a call, its share of the commit included."""
    started = time.perf_counter()
    for first in range(0, calls, per_transaction):
        if per_transaction == 1:
            connection.execute(statement, _arguments(statement, first))
            continue
        with connection.transaction():
            for number in range(first, min(first + per_transaction, calls)):
                connection.execute(statement, _arguments(statement, number))
    return (time.perf_counter() - started) / calls * 1e6


def _arguments(statement: LiteralString, number: int) -> tuple[str, ...]:
    recipient, key = f"recipient-{number % 1000:06}", f"{number:09}"
    if statement is PLAIN:
        return recipient, "rung.notify", PAYLOAD
    return (recipient, KIND, DATA, key) if statement is NOTIFY else (recipient, key, "paid")


def _time_inside(connection: psycopg.Connection[Any], statement: str, calls: int) -> float:
    started = time.perf_counter()
    connection.execute(_LOOP.format(calls=calls, statement=statement).encode())
    return (time.perf_counter() - started) / calls * 1e6
