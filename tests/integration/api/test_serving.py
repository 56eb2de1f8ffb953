"""What the API reads, whom it lets in, and how it lives and ends."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any
from urllib.request import Request, urlopen

import aiohttp
import msgspec
import psycopg
import pytest
from prometheus_client import CollectorRegistry

from deploy.topics import ensure_topics
from relay.api.config import ApiConfig
from relay.journal.events import COLUMNS, Entry
from relay.journal.partitions import ensure
from schemas.ids import notification_id
from schemas.records import EventType, Outcome, PlannedStep
from schemas.topics import DAY_MS, OUTCOMES, Naming
from tests.support.eventually import eventually
from tests.support.journal import event, now_ms
from tests.support.kafka import read_all

Serving = Callable[[ApiConfig, CollectorRegistry], AbstractContextManager[str]]
IDENTITY = notification_id("ada 🦊", "invoice-7")
PLACE = f"/v1/notifications/{IDENTITY}"


@pytest.fixture
def known(api_db: str) -> str:
    """A database whose journal has one notification with two steps, of which the first was sent."""
    now = now_ms()
    plan = (
        PlannedStep(step_no=0, channel="push", due_at=now),
        PlannedStep(step_no=1, channel="email", due_at=now + 60_000),
    )
    step = {"step_no": 0, "channel": "push", "attempt": 1, "key": f"{IDENTITY}:0"}
    story = [
        (EventType.ACCEPTED, {"steps": plan, "expires_at": now + DAY_MS}),
        (EventType.STEP_CLAIMED, {"reason": "due", "due_at": now, **step}),
        (EventType.STEP_SENT, {"reason": "sent", "provider": "fcm", "latency_ms": 9, **step}),
    ]
    with psycopg.connect(api_db, autocommit=True) as connection:
        ensure(connection, [now // DAY_MS])
        for offset, (kind, fields) in enumerate(story):
            happened = event("ada 🦊", **{"notification_id": IDENTITY, "at": now + offset, **fields})
            entry = Entry(None, 0, offset, str(notification_id("event", str(offset))), kind, happened)  # type: ignore[arg-type]
            marks = ", ".join(["%s"] * len(COLUMNS))
            connection.execute(f"INSERT INTO rung.delivery_event ({', '.join(COLUMNS)}) VALUES ({marks})", entry.row())
    return api_db


async def get(url: str, **options: Any) -> tuple[int, Any]:
    """Status and JSON of a GET."""
    async with aiohttp.ClientSession() as session, session.get(url, **options) as response:
        return response.status, await response.json(content_type=None)


async def test_a_notification_can_be_read(known: str, api: str) -> None:
    """Its standing by id and by recipient and key, and its explanation in words."""
    status, standing = await get(api + PLACE)
    assert status == 200
    assert (standing["status"], standing["recipient"]) == ("open", "ada 🦊")
    assert [(s["step_no"], s["state"]) for s in standing["steps"]] == [(0, "sent"), (1, "pending")]
    query = {"recipient": "ada 🦊", "dedup_key": "invoice-7"}
    assert await get(api + "/v1/notifications", params=query) == (200, standing)
    status, story = await get(api + PLACE + "/explain")
    assert status == 200
    assert story["timeline"][-1]["text"].startswith("sent (attempt 1): fcm accepted the message in 9 ms")
    assert story["next"].startswith("step 1 email is due at ")


async def test_what_the_journal_does_not_know_is_404(known: str, api: str) -> None:
    """Unknown ids, texts that are no id, and unknown keys: a problem that says why it may be so."""
    for path in (f"/v1/notifications/{notification_id('bob', 'x')}", "/v1/notifications/7", PLACE.replace("-", "x")):
        for end in ("", "/explain"):
            status, body = await get(api + path + end)
            assert (status, body["status"]) == (404, 404)
    status, body = await get(api + "/v1/notifications", params={"recipient": "ada", "dedup_key": "none"})
    assert status == 404
    assert "accepted yet" in body["detail"]
    status, body = await get(api + "/v1/notifications", params={"recipient": "ada"})
    assert (status, body["field"]) == (422, "dedup_key")


async def test_a_token_is_asked_for_where_one_is_set(known: str, serving: Serving) -> None:
    """Without the right bearer token `/v1` is closed; health is open."""
    with serving(ApiConfig(database_url=known, port=0, token="sésame"), CollectorRegistry()) as api:
        wrong: list[dict[str, str]] = [
            {},
            {"Authorization": "Bearer "},
            {"Authorization": "Bearer sesame"},
            {"Authorization": "Basic sésame"},
        ]
        for headers in wrong:
            async with aiohttp.ClientSession() as session, session.get(api + PLACE, headers=headers) as response:
                assert response.status == 401
                assert response.headers["WWW-Authenticate"] == "Bearer"
        assert (await get(api + PLACE, headers={"Authorization": "bearer sésame"}))[0] == 200
        assert (await get(api + "/healthz"))[0] == 200
        assert (await get(api + "/readyz"))[0] == 200


def test_secrets_do_not_show(api_db: str) -> None:
    """Neither the token nor the database's address is in the settings' text."""
    shown = repr(ApiConfig(database_url="postgresql://u:secret@h/d", token="sesame"))
    assert "secret" not in shown
    assert "sesame" not in shown


async def test_without_its_database_it_lives_and_is_not_ready(serving: Serving) -> None:
    """A database that is away makes 503 with Retry-After, and the process goes on."""
    away = ApiConfig(database_url="postgresql://nobody@127.0.0.1:9/none", port=0, database_wait_seconds=0.2)
    with serving(away, CollectorRegistry()) as api:
        assert (await get(api + "/healthz"))[0] == 200
        assert (await get(api + "/readyz"))[0] == 503
        async with aiohttp.ClientSession() as session, session.get(api + PLACE) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")


async def test_it_recovers_when_its_connections_were_cut(known: str, api: str) -> None:
    """A connection that the server ended is replaced before a request gets it."""
    assert (await get(api + PLACE))[0] == 200
    with psycopg.connect(known, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rung-api'")
    assert (await get(api + PLACE))[0] == 200


async def test_a_database_that_is_not_migrated_is_not_ready(database_url: str, serving: Serving) -> None:
    """Readiness says what to do."""
    with serving(ApiConfig(database_url=database_url, port=0), CollectorRegistry()) as api:
        status, body = await get(api + "/readyz")
        assert (status, body["hint"]) == (503, "Run `rung migrate`.")


def test_a_request_under_way_is_finished_at_the_stop(api_db: str, serving: Serving) -> None:
    """Told to stop in the middle of a request, the API still answers it, and ends after that."""
    answers: list[int] = []
    with psycopg.connect(api_db) as blocker:
        blocker.execute("LOCK TABLE rung.outbox IN ACCESS EXCLUSIVE MODE")
        with (
            ThreadPoolExecutor(1) as caller,
            serving(ApiConfig(database_url=api_db, port=0), CollectorRegistry()) as api,
        ):
            asked = caller.submit(_ask, api)
            eventually(lambda: _waits(api_db))
            # The server is told to stop when this block is left; the lock goes a moment after.
            threading.Timer(0.5, blocker.rollback).start()
        answers.append(asked.result(5))
    assert answers == [202]


def _ask(api: str) -> int:
    body = json.dumps({"recipient": "ada", "kind": "payment", "dedup_key": "k"}).encode()
    request = Request(api + "/v1/notifications", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=20) as response:
        return int(response.status)


def _waits(url: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
    return row is not None and row[0] > 0


async def test_a_receipt_becomes_an_outcome(known: str, kafka: str, topic_prefix: str, serving: Serving) -> None:
    """Acknowledged by Kafka before the 202, keyed by recipient, with what the journal knows filled in."""
    settings = {"bootstrap.servers": kafka}
    ensure_topics(settings, Naming(topic_prefix), partitions=2)
    config = ApiConfig(database_url=known, port=0, kafka=settings, naming=Naming(topic_prefix))
    receipt = {
        "notification_id": str(IDENTITY),
        "step_no": 0,
        "key": f"{IDENTITY}:0",
        "outcome": "bounced",
        "reason": "mailbox_full",
        "provider_ref": "m-1",
        "at": "2026-01-01T00:00:00Z",
    }
    with serving(config, CollectorRegistry()) as api:
        async with aiohttp.ClientSession(api) as session:
            response = await session.post("/v1/receipts", json=receipt)
            assert (response.status, await response.json()) == (202, {"notification_id": str(IDENTITY), "step_no": 0})
            refused = {
                "key": {"key": f"{IDENTITY}:1"},
                "step_no": {"step_no": 2, "key": f"{IDENTITY}:2"},
                "outcome": {"outcome": "sent"},
                "reason": {"reason": "Dear Ada, your mailbox is full"},
            }
            for field, change in refused.items():
                response = await session.post("/v1/receipts", json={**receipt, **change})
                assert (response.status, (await response.json(content_type=None))["field"]) == (422, field)
            unknown = str(notification_id("bob", "x"))
            response = await session.post("/v1/receipts", json={**receipt, "notification_id": unknown})
            assert response.status == 404
        [record] = read_all(kafka, config.naming(OUTCOMES))
    assert record.key == "ada 🦊".encode()
    assert record.header("ce_type") == Outcome.TYPE
    written = msgspec.json.decode(record.value or b"", type=Outcome)
    assert (written.dedup_key, written.channel, written.claim, written.attempt) == ("invoice-7", "push", 0, 0)
    assert (written.outcome, written.reason, written.provider_ref) == ("bounced", "mailbox_full", "m-1")
    assert written.at == 1_767_225_600_000


async def test_a_receipt_that_kafka_does_not_take_is_503(known: str, serving: Serving) -> None:
    """No acknowledgement, no 202: the provider sends it again."""
    config = ApiConfig(database_url=known, port=0, kafka={"bootstrap.servers": "127.0.0.1:9"}, kafka_wait_seconds=0.5)
    receipt = {"notification_id": str(IDENTITY), "step_no": 0, "key": f"{IDENTITY}:0", "outcome": "delivered"}
    with serving(config, CollectorRegistry()) as api:
        began = time.monotonic()
        async with aiohttp.ClientSession(api) as session, session.post("/v1/receipts", json=receipt) as response:
            assert response.status == 503
        assert time.monotonic() - began < 5


async def test_without_kafka_there_is_no_receipt_route(api: str) -> None:
    """An API that could not keep a receipt does not take one."""
    async with aiohttp.ClientSession(api) as session, session.post("/v1/receipts", json={}) as response:
        assert response.status == 404
