"""The routes: each reads its request, makes one call and says what was done."""

import time
from collections.abc import Iterator
from typing import Any, TypeVar
from urllib.parse import unquote
from uuid import UUID

import msgspec
from aiohttp import web

from relay.api import bodies, database
from relay.api.database import Pool
from relay.api.problems import Problem
from relay.api.receipts import Receipts, outcome
from relay.journal.explain import explanation
from relay.journal.status import fold

POOL: web.AppKey[Pool] = web.AppKey("pool")
RECEIPTS: web.AppKey[Receipts] = web.AppKey("receipts")

UNKNOWN = (
    "the journal knows no such notification: it was not accepted yet (ask again in a moment), its transaction was "
    "rolled back, or its retention is over"
)
T = TypeVar("T", bound=msgspec.Struct)


def routes(*, receipts: bool) -> Iterator[web.RouteDef]:
    """Every route; receipts only where there is a Kafka to write them to."""
    yield web.get("/healthz", healthz)
    yield web.get("/readyz", readyz)
    yield web.post("/v1/notifications", post_notification)
    yield web.get("/v1/notifications", find_notification)
    yield web.get("/v1/notifications/{id}", get_notification)
    yield web.get("/v1/notifications/{id}/explain", explain_notification)
    yield web.post("/v1/resolutions", post_resolution)
    yield web.put("/v1/recipients/{recipient}", put_recipient)
    yield web.delete("/v1/recipients/{recipient}", delete_recipient)
    if receipts:
        yield web.post("/v1/receipts", post_receipt)


async def healthz(_: web.Request) -> web.Response:
    """The process runs."""
    return answer(200, {"status": "ok"})


async def readyz(request: web.Request) -> web.Response:
    """The database answers and is migrated."""
    if not await database.ready(request.app[POOL]):
        raise Problem(503, "the database is not migrated", hint="Run `rung migrate`.")
    return answer(200, {"status": "ready"})


async def post_notification(request: web.Request) -> web.Response:
    """202: recorded, not yet delivered. 200: the journal already knows a notification with this key."""
    body = await _body(request, bodies.NotifyBody)
    identity, known = await database.notify(
        request.app[POOL],
        body.recipient,
        body.kind,
        body.data,
        bodies.dedup_key(body, request.headers.get("Idempotency-Key")),
        bodies.utc(body.expires_at, "expires_at"),
    )
    location = {"Location": f"/v1/notifications/{identity}"}
    return answer(200 if known else 202, {"notification_id": identity}, location)


async def find_notification(request: web.Request) -> web.Response:
    """The standing of the notification with a recipient and a dedup key, which are query parameters."""
    recipient, key = (_parameter(request, name) for name in ("recipient", "dedup_key"))
    identity = await database.find(request.app[POOL], recipient, key)
    if identity is None:
        raise Problem(404, UNKNOWN)
    return await _standing(request, identity, recipient)


async def get_notification(request: web.Request) -> web.Response:
    """The standing of a notification."""
    return await _standing(request, _identity(request))


async def explain_notification(request: web.Request) -> web.Response:
    """What happened to a notification and why."""
    story = explanation(await database.events(request.app[POOL], _identity(request)))
    if story is None:
        raise Problem(404, UNKNOWN)
    return answer(200, story)


async def post_resolution(request: web.Request) -> web.Response:
    """The person acted."""
    body = await _body(request, bodies.ResolveBody)
    await database.resolve(request.app[POOL], body.recipient, body.dedup_key, body.resolution)
    return answer(202, {"recipient": body.recipient, "dedup_key": body.dedup_key})


async def put_recipient(request: web.Request) -> web.Response:
    """Replace a profile."""
    raw = await _raw(request)
    bodies.read(raw, bodies.ProfileBody)
    recipient = _recipient(request)
    await database.put_recipient(request.app[POOL], recipient, raw)
    return answer(202, {"recipient": recipient})


async def delete_recipient(request: web.Request) -> web.Response:
    """Forget a person."""
    recipient = _recipient(request)
    await database.erase_recipient(request.app[POOL], recipient)
    return answer(202, {"recipient": recipient})


async def post_receipt(request: web.Request) -> web.Response:
    """A provider's later word about a message; 202 once Kafka has it."""
    body = await _body(request, bodies.ReceiptBody)
    known = fold(await database.events(request.app[POOL], body.notification_id))
    if known is None:
        raise Problem(404, UNKNOWN)
    await request.app[RECEIPTS].write(outcome(body, known, time.time_ns() // 1_000_000))
    return answer(202, {"notification_id": body.notification_id, "step_no": body.step_no})


def answer(status: int, body: Any, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON answer."""
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json", headers=headers)


async def _standing(request: web.Request, identity: UUID, recipient: str | None = None) -> web.Response:
    status = fold(await database.events(request.app[POOL], identity, recipient))
    if status is None:
        raise Problem(404, UNKNOWN)
    return answer(200, status)


async def _raw(request: web.Request) -> bytes:
    """The body's bytes. A caller that names no type is taken to mean JSON."""
    if "Content-Type" in request.headers and request.content_type != "application/json":
        raise Problem(415, "the body must be application/json", field="Content-Type")
    return await request.read()


async def _body(request: web.Request, kind: type[T]) -> T:
    return bodies.read(await _raw(request), kind)


def _identity(request: web.Request) -> UUID:
    """An id that is no UUID is the id of nothing."""
    try:
        return UUID(request.match_info["id"])
    except ValueError:
        raise Problem(404, "a notification's id is a UUID") from None


def _recipient(request: web.Request) -> str:
    try:
        # The framework leaves what it cannot decode as it is, which would name another person.
        unquote(request.rel_url.raw_path, errors="strict")
    except UnicodeDecodeError:
        raise Problem(422, "is not UTF-8 in its percent-encoding", field="recipient") from None
    recipient = request.match_info["recipient"]
    bodies.refuse_nul(recipient, "recipient")
    return recipient


def _parameter(request: web.Request, name: str) -> str:
    value = request.query.get(name)
    if not value:
        raise Problem(422, "is missing", field=name, hint="Pass recipient and dedup_key as query parameters.")
    bodies.refuse_nul(value, name)
    return value
