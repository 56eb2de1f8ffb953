"""Errors as RFC 9457 problem details, and what an error of PostgreSQL means to a caller."""

from http import HTTPStatus

import msgspec
import psycopg
from aiohttp import web
from psycopg_pool import PoolTimeout

CONTENT_TYPE = "application/problem+json"
RETRY_SECONDS = "1"


class Problem(Exception):  # noqa: N818 - the noun of RFC 9457
    """An answer that is not the one asked for. `field` names the part of the request at fault."""

    def __init__(self, status: int, detail: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.hint = hint


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The JSON of a problem."""

    type: str
    title: str
    status: int
    detail: str = ""
    field: str | None = None
    """Dotted path of the field, parameter or header at fault."""
    hint: str | None = None


def response(problem: Problem) -> web.Response:
    """The HTTP answer of a problem."""
    body = ProblemBody(
        type="urn:rung:problem:bad-field" if problem.field is not None else "about:blank",
        title=HTTPStatus(problem.status).phrase,
        status=problem.status,
        detail=problem.detail,
        field=problem.field,
        hint=problem.hint,
    )
    headers = {}
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = RETRY_SECONDS
    return web.Response(
        status=problem.status, body=msgspec.json.encode(body), content_type=CONTENT_TYPE, headers=headers
    )


def of_http(error: web.HTTPException) -> Problem:
    """What aiohttp itself refuses: no such route, a method that the route lacks, a body over the limit."""
    details = {
        404: "no such path",
        405: "this path takes other methods; see the Allow header",
        413: "the body is larger than this API takes",
    }
    return Problem(error.status, details.get(error.status, error.reason))


def of_database(error: psycopg.Error) -> Problem | None:
    """What PostgreSQL says about a call of the SQL contract; None if it is our fault and not the caller's."""
    if isinstance(error, psycopg.errors.InvalidParameterValue):
        diag = error.diag
        message = diag.message_primary or ""
        field = message.split(" ", 1)[0] if message.startswith(diag.column_name or "\0") else diag.column_name
        return Problem(422, message, field=field, hint=diag.message_hint)
    sqlstate = error.sqlstate
    if sqlstate is None and isinstance(error, psycopg.DataError):
        return Problem(422, "a value cannot be stored: " + str(error))
    if sqlstate is not None and sqlstate[:2] in {"22", "54"}:
        return Problem(422, error.diag.message_primary or "a value cannot be stored")
    if isinstance(error, PoolTimeout | psycopg.OperationalError | psycopg.InterfaceError):
        return Problem(503, "the database does not answer; try again")
    return None
