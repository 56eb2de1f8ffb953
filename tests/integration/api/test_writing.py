"""What the API writes: rows of the outbox, exactly as the SQL contract makes them, or a clear refusal."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import quote

import aiohttp
import psycopg
import pytest
from prometheus_client import CollectorRegistry

from relay.journal.events import COLUMNS, Entry
from relay.journal.partitions import ensure
from schemas.ids import notification_id
from schemas.records import EventType
from schemas.topics import DAY_MS
from tests.support.journal import event, now_ms

ASK = {"recipient": "ada", "kind": "payment", "data": {"sum": "12 €"}, "dedup_key": "invoice-7"}


def outbox(url: str) -> list[dict[str, Any]]:
    """The payloads in the outbox, in their order, each with its type."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT type, payload FROM rung.outbox ORDER BY seq").fetchall()
    return [{"type": kind, **payload} for kind, payload in rows]


def journal(url: str, **fields: Any) -> None:
    """Put an accepted notification into the journal."""
    entry = Entry(None, 0, 0, "00000000-0000-0000-0000-000000000001", EventType.ACCEPTED, event(**fields))  # type: ignore[arg-type]
    with psycopg.connect(url, autocommit=True) as connection:
        ensure(connection, [now_ms() // DAY_MS])
        marks = ", ".join(["%s"] * len(COLUMNS))
        connection.execute(f"INSERT INTO rung.delivery_event ({', '.join(COLUMNS)}) VALUES ({marks})", entry.row())


async def problem(response: aiohttp.ClientResponse, status: int) -> dict[str, Any]:
    """The problem of a response, which must be one."""
    body = await response.read()
    assert (response.status, response.content_type) == (status, "application/problem+json"), body
    found: dict[str, Any] = json.loads(body)
    assert found["status"] == status
    assert found["title"]
    return found


async def test_a_notification_is_recorded(client: aiohttp.ClientSession, api_db: str) -> None:
    """202 with the derived id and its place; the row is what `rung.notify` writes."""
    response = await client.post("/v1/notifications", json={**ASK, "expires_at": "2030-01-01T00:00:00+01:00"})
    identity = str(notification_id("ada", "invoice-7"))
    assert (response.status, await response.json()) == (202, {"notification_id": identity})
    assert response.headers["Location"] == f"/v1/notifications/{identity}"
    assert outbox(api_db) == [
        {**ASK, "type": "rung.notify", "notification_id": identity, "expires_at": 1_893_452_400_000}
    ]


async def test_a_repeat_has_the_same_id(client: aiohttp.ClientSession, api_db: str) -> None:
    """202 again until the journal knows the key, 200 from then on; each repeat is written for the processor."""
    first = await client.post("/v1/notifications", json=ASK)
    second = await client.post("/v1/notifications", json=ASK)
    assert (first.status, second.status) == (202, 202)
    assert await first.json() == await second.json()
    identity = notification_id("ada", "invoice-7")
    journal(api_db, notification_id=identity)
    third = await client.post("/v1/notifications", json=ASK)
    assert (third.status, await third.json()) == (200, {"notification_id": str(identity)})
    assert len(outbox(api_db)) == 3


async def test_the_idempotency_key_header_stands_for_the_dedup_key(client: aiohttp.ClientSession, api_db: str) -> None:
    """Bare or quoted, it is the dedup key; another one in the body is refused."""
    ask = {name: value for name, value in ASK.items() if name != "dedup_key"}
    for header, key in (("order-1", "order-1"), ('"order \\"2\\""', 'order "2"'), ("commande-é", "commande-é")):
        response = await client.post("/v1/notifications", json=ask, headers={"Idempotency-Key": header})
        assert response.status == 202
        assert outbox(api_db)[-1]["dedup_key"] == key
    same = await client.post("/v1/notifications", json=ASK, headers={"Idempotency-Key": "invoice-7"})
    assert same.status == 202
    other = await client.post("/v1/notifications", json=ASK, headers={"Idempotency-Key": "other"})
    assert (await problem(other, 422))["field"] == "Idempotency-Key"
    assert (await problem(await client.post("/v1/notifications", json=ask), 422))["field"] == "dedup_key"


async def test_resolutions_and_recipients_are_recorded(client: aiohttp.ClientSession, api_db: str) -> None:
    """The other three calls write what their functions write."""
    profile = {"addresses": {"email": "ada@example.test"}, "quiet_hours": {"from": "22:00", "until": "08:00"}}
    resolution = {"recipient": "ada", "dedup_key": "invoice-7", "resolution": "paid"}
    assert (await client.put("/v1/recipients/ada", json=profile)).status == 202
    assert (await client.post("/v1/resolutions", json=resolution)).status == 202
    assert (await client.delete("/v1/recipients/ada")).status == 202
    assert outbox(api_db) == [
        {"type": "rung.put_recipient", "recipient": "ada", "profile": profile},
        {"type": "rung.resolve", **resolution},
        {"type": "rung.erase_recipient", "recipient": "ada"},
    ]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"recipient": ""}, "recipient"),
        ({"recipient": 5}, "recipient"),
        ({"recipient": None}, "recipient"),
        ({"recipient": "a\nb"}, "recipient"),
        ({"recipient": "a\0b"}, "recipient"),
        ({"recipient": "é" * 257}, "recipient"),
        ({"kind": "unheard-of"}, "kind"),
        ({"data": []}, "data"),
        ({"data": {"a": {"b": ["\0"]}}}, "data.a.b[0]"),
        ({"data": {"a\0": 1}}, "data.a\\u0000"),
        ({"dedup_key": ""}, "dedup_key"),
        ({"dedup_key": "x" * 513}, "dedup_key"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"expires_at": "2030-01-01T00:00:00"}, "expires_at"),
        ({"expires_at": "0001-01-01T00:00:00+14:00"}, "expires_at"),
        ({"expires_at": "0001-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": 5}, "expires_at"),
        ({"expire_at": "2030-01-01T00:00:00Z"}, "expire_at"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
async def test_bad_input_names_its_field_and_leaves_no_trace(
    client: aiohttp.ClientSession, api_db: str, change: dict[str, Any], field: str
) -> None:
    """422 with the field; nothing is written, so the corrected request may use the key."""
    found = await problem(await client.post("/v1/notifications", json={**ASK, **change}), 422)
    assert found["field"] == field
    assert found["type"] == "urn:rung:problem:bad-field"
    assert outbox(api_db) == []
    assert (await client.post("/v1/notifications", json=ASK)).status == 202


async def test_an_unknown_kind_is_told_the_known_ones(client: aiohttp.ClientSession) -> None:
    """The SQL contract's hint reaches the caller."""
    found = await problem(await client.post("/v1/notifications", json={**ASK, "kind": "paymint"}), 422)
    assert "payment, welcome" in found["hint"]


@pytest.mark.parametrize(
    ("profile", "field"),
    [
        ({"timezone": "Europe/Berlin"}, "timezone"),
        ({"time_zone": "Europe/Atlantis"}, "profile.time_zone"),
        ({"quiet_hours": {"from": "22:00"}}, "quiet_hours.until"),
        ({"quiet_hours": {"from": "22:00", "until": "25:00"}}, "profile.quiet_hours.until"),
        ({"quiet_hours": {"from": "22:00", "until": "08:00", "to": "x"}}, "quiet_hours.to"),
        ({"addresses": {"email": 5}}, "addresses[...]"),
        ([], "body"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_bad_profile_names_its_field(client: aiohttp.ClientSession, profile: Any, field: str) -> None:
    """Whether the API or the database finds it, the field is named."""
    assert (await problem(await client.put("/v1/recipients/ada", json=profile), 422))["field"] == field


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"recipient": "\\ud83d"}', b"\xef\xbb\xbf{}", b"no"])
async def test_a_body_that_is_no_json_is_400(client: aiohttp.ClientSession, body: bytes) -> None:
    """Malformed JSON, bytes that are no UTF-8 and lone surrogates are the sender's to mend."""
    headers = {"Content-Type": "application/json"}
    await problem(await client.post("/v1/notifications", data=body, headers=headers), 400)


async def test_limits_of_a_request(client: aiohttp.ClientSession, api_db: str) -> None:
    """Over 1 MiB is 413, another type is 415, absurd nesting is 422; what the SQL contract takes fits."""
    headers = {"Content-Type": "application/json"}
    for size, status in ((2**20, 413), (2**20 - 200, 422), (1_039_000, 202)):
        body = io.BytesIO(json.dumps({**ASK, "data": {"x": "x" * size}}).encode())
        response = await client.post("/v1/notifications", data=body, headers=headers)
        assert response.status == status
        assert status == 202 or await problem(response, status)
    form = await client.post("/v1/notifications", data={"recipient": "ada"})
    assert (await problem(form, 415))["field"] == "Content-Type"
    deep = b'{"recipient": "a", "kind": "payment", "dedup_key": "k", "data": {"x": ' + b"[" * 5_000
    await problem(await client.post("/v1/notifications", data=deep, headers=headers), 422)
    assert len(outbox(api_db)) == 1


UNICODE = ["👩‍👩‍👧‍👦 family", "مرحبا", "Zoë", "Zoë", "a/b?c#d%2F", " ", "..", "\u202eevil", "é" * 256]


@pytest.mark.parametrize("text", UNICODE, ids=ascii)
async def test_any_text_survives_body_and_path(client: aiohttp.ClientSession, api_db: str, text: str) -> None:
    """Emoji, right-to-left, both normal forms and signs of URLs arrive as they were sent."""
    assert (await client.post("/v1/notifications", json={**ASK, "recipient": text, "dedup_key": text})).status == 202
    response = await client.put(_url(f"/v1/recipients/{_path(text)}", client), json={"locale": text})
    assert (response.status, await response.json()) == (202, {"recipient": text})
    first, second = outbox(api_db)
    assert (first["recipient"], first["dedup_key"]) == (text, text)
    assert first["notification_id"] == str(notification_id(text, text))
    assert (second["recipient"], second["profile"]) == (text, {"locale": text})


def _path(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E")


def _url(path: str, client: aiohttp.ClientSession) -> Any:
    """A URL whose escapes stay as they are."""
    from yarl import URL

    return URL(str(client._base_url).rstrip("/") + path, encoded=True)


@pytest.mark.parametrize("text", ["%ff", "a%ED%A0%80b", "%c3"])
async def test_a_path_that_is_not_utf8_is_422(client: aiohttp.ClientSession, api_db: str, text: str) -> None:
    """Left as it is it would name somebody else, called "%ff"."""
    for method, body in (("PUT", {}), ("DELETE", None)):
        response = await client.request(method, _url(f"/v1/recipients/{text}", client), json=body)
        assert (await problem(response, 422))["field"] == "recipient"
    assert outbox(api_db) == []


async def test_nul_in_a_path_is_422(client: aiohttp.ClientSession) -> None:
    """PostgreSQL has no NUL; the caller hears so by the argument's name."""
    response = await client.delete(_url("/v1/recipients/a%00b", client))
    assert (await problem(response, 422))["field"] == "recipient"


async def test_requests_are_counted_by_route(client: aiohttp.ClientSession, registry: CollectorRegistry) -> None:
    """Paths of callers never become labels; a known route has its own."""
    await client.post("/v1/notifications", json=ASK)
    await problem(await client.get("/v1/unheard-of/ada"), 404)
    response = await client.patch("/v1/notifications")
    await problem(response, 405)
    assert "POST" in response.headers["Allow"]
    sample = registry.get_sample_value
    assert sample("rung_api_requests_total", {"route": "POST /v1/notifications", "status": "202"}) == 1
    assert sample("rung_api_requests_total", {"route": "other", "status": "404"}) == 1
    assert sample("rung_api_requests_total", {"route": "other", "status": "405"}) == 1
    assert sample("rung_api_request_seconds_count", {"route": "POST /v1/notifications"}) == 1
