"""Rows that the relay set aside go back into the outbox, if it could publish them today."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from relay.outbox.migrations import migrate
from relay.redrive.config import RedriveConfig
from relay.redrive.judgement import Refusal
from relay.redrive.outbox_dead import added, put_back

IDENTITY = "00000000-0000-0000-0000-00000000000"
_INSERT = """
INSERT INTO rung.outbox_dead
    (seq, id, aggregatetype, aggregateid, type, payload, xid, bucket, created_at, reason, detail)
VALUES (%s, %s, %s, %s, %s, %s, '7', 1, now() - make_interval(days => %s), %s, '')
"""


def notify(**fields: object) -> dict[str, object]:
    """A request as the outbox holds it."""
    return {"notification_id": IDENTITY + "1", "recipient": "ada", "kind": "k", "dedup_key": "d", **fields}


def test_rows_go_back_as_they_were_and_only_those_that_may(database_url: str) -> None:
    """A dry run counts; the run moves what is fit; what is broken, too old, expired, or of a profile stays."""
    migrate(database_url)
    rows: list[tuple[Any, ...]] = [
        ("resolutions", "rung.resolve", {"recipient": "ada", "dedup_key": "d", "resolution": "paid"}, 20),
        ("notifications", "rung.notify", notify(), 0),
        ("notifications", "rung.notify", notify(), 8),
        ("notifications", "rung.notify", notify(expires_at=5), 0),
        ("notifications", "rung.notify", {"recipient": "ada"}, 0),
        ("notifications", "rung.put_recipient", {"recipient": "ada", "profile": {}}, 0),
        ("nowhere", "rung.notify", notify(), 0),
    ]
    config = RedriveConfig({}, dry_run=True)
    with psycopg.connect(database_url, autocommit=True) as connection:
        for number, (topic, kind, payload, days) in enumerate(rows):
            reason = "bad_field" if number else "not_json"
            values = (number, f"{IDENTITY}{number}", topic, "ada", kind, Jsonb(payload), days, reason)
            connection.execute(_INSERT, values)
        now, stop = round(time.time() * 1000), threading.Event()
        counted = put_back(config, database_url, now, stop)
        assert counted.back == {"not_json": 1, "bad_field": 1}
        assert counted.refused == {
            ("bad_field", Refusal.TOO_OLD, ""): 1,
            ("bad_field", Refusal.EXPIRED, ""): 1,
            ("bad_field", Refusal.STILL_BAD, "bad_field"): 1,
            ("bad_field", Refusal.WRITE_AGAIN, ""): 1,
            ("bad_field", Refusal.STILL_BAD, "unknown_type"): 1,
        }
        assert connection.execute("SELECT count(*) FROM rung.outbox").fetchone() == (0,)
        only = RedriveConfig({}, dry_run=False, reasons=frozenset({"not_json"}))
        assert put_back(only, database_url, now, stop).back == {"not_json": 1}
        rest = put_back(RedriveConfig({}, dry_run=False, recipient="ada"), database_url, now, stop)
        assert rest.back == {"bad_field": 1}
        back = connection.execute("SELECT id::text, type, aggregateid FROM rung.outbox ORDER BY id").fetchall()
        assert back == [(IDENTITY + "0", "rung.resolve", "ada"), (IDENTITY + "1", "rung.notify", "ada")]
        assert connection.execute("SELECT count(*) FROM rung.outbox_dead").fetchone() == (5,)
        assert put_back(RedriveConfig({}, dry_run=False), database_url, now, stop).back.total() == 0
        assert added(counted, rest).back == {"not_json": 1, "bad_field": 2}


def test_rows_go_back_no_faster_than_the_rate_and_until_told_to_stop(database_url: str) -> None:
    """Four rows at twenty a second take a fifth of one; told to stop it leaves the rest, and says so."""
    migrate(database_url)
    with psycopg.connect(database_url, autocommit=True) as connection:
        for number in range(4):
            values = (
                number,
                f"{IDENTITY}{number}",
                "notifications",
                "ada",
                "rung.notify",
                Jsonb(notify()),
                0,
                "not_json",
            )
            connection.execute(_INSERT, values)
        now, stop = round(time.time() * 1000), threading.Event()
        stop.set()
        stopped = put_back(RedriveConfig({}, dry_run=False), database_url, now, stop)
        assert (stopped.stopped, stopped.back.total()) == (True, 0)
        began = time.monotonic()
        back = put_back(RedriveConfig({}, dry_run=False, rate=20), database_url, now, threading.Event())
        assert (back.stopped, back.back.total()) == (False, 4)
        assert time.monotonic() - began >= 0.2
