"""Request bodies: what each route takes, and errors that name the field."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

import msgspec

from relay.api.problems import Problem
from schemas.profile import Profile, QuietHours

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Code = Annotated[str, msgspec.Meta(pattern="^[a-z0-9_]{1,64}$")]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body refuses fields that it does not know: a misspelt one would be a request other than the one meant."""


class NotifyBody(Body, frozen=True, kw_only=True):
    """`POST /v1/notifications`."""

    recipient: str
    kind: str
    data: dict[str, Any] = {}
    dedup_key: str | None = None
    """The header `Idempotency-Key` may stand for it."""
    expires_at: Moment | None = None
    """RFC 3339, with an offset."""


class ResolveBody(Body, frozen=True, kw_only=True):
    """`POST /v1/resolutions`."""

    recipient: str
    dedup_key: str
    resolution: str


class QuietHoursBody(QuietHours, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a profile."""


class ProfileBody(Profile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`PUT /v1/recipients/{recipient}`: the whole profile."""

    quiet_hours: QuietHoursBody | None = None


class ReceiptBody(Body, frozen=True, kw_only=True):
    """`POST /v1/receipts`: what a provider says later about a message that it accepted."""

    notification_id: UUID
    step_no: Annotated[int, msgspec.Meta(ge=0, lt=1_000)]
    key: str
    """The idempotency key that the provider was given; it proves that the step is meant."""
    outcome: Literal["delivered", "bounced"]
    reason: Code | None = None
    """A short code, such as `mailbox_full`."""
    provider: Annotated[str, msgspec.Meta(max_length=128)] | None = None
    provider_ref: Annotated[str, msgspec.Meta(max_length=256)] | None = None
    at: Moment | None = None
    """When it happened; now, if absent."""


T = TypeVar("T", bound=msgspec.Struct)

_PATH = re.compile(r"(?: - at|at) `\$\.?(?P<path>[^`]*)`$")
_NAMED = re.compile(r"(?:unknown|required) field `(?P<name>[^`]*)`")


def read(body: bytes, kind: type[T]) -> T:
    """Decode a body.

    Raises:
        Problem: 400 if it is no JSON, 422 with the field if it is not what the route takes.
    """
    try:
        decoded = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _bad_field(str(error)) from error
    except RecursionError:
        raise Problem(422, "the body is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise Problem(400, f"the body is no JSON in UTF-8: {error}") from error
    if b"\\u0000" in body:
        refuse_nul(msgspec.json.decode(body))
    return decoded


def _bad_field(message: str) -> Problem:
    found = _PATH.search(message)
    path = found["path"] if found else ""
    named = _NAMED.search(message)
    if named:
        path = f"{path}.{named['name']}" if path else named["name"]
    return Problem(422, message[: found.start()] if found else message, field=path or "body")


def refuse_nul(value: object, path: str = "") -> None:
    """PostgreSQL has no NUL in texts: say where one is, before it does so less kindly.

    Raises:
        Problem: 422 with the place.
    """
    if isinstance(value, str) and "\0" in value:
        raise Problem(422, "holds a NUL character, which cannot be stored", field=path or "body")
    if isinstance(value, Mapping):
        for name, item in value.items():
            place = f"{path}.{name}".removeprefix(".").replace("\0", "\\u0000")
            refuse_nul(name, place)
            refuse_nul(item, place)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            refuse_nul(item, f"{path}[{number}]")


def utc(moment: datetime | None, field: str) -> datetime | None:
    """A moment in UTC.

    Raises:
        Problem: 422, for the last hours of the calendar, which UTC does not have.
    """
    try:
        return None if moment is None else moment.astimezone(UTC)
    except OverflowError:
        raise Problem(422, "lies outside the years 1 to 9999 in UTC", field=field) from None


def dedup_key(body: NotifyBody, header: str | None) -> str:
    """The key that makes a request one with its repeats, from the body or from the header `Idempotency-Key`.

    The header may have the quotes of a structured field (RFC 8941) or not.

    Raises:
        Problem: 422 if there is none, or the two differ.
    """
    if header is None:
        if body.dedup_key is None:
            raise Problem(
                422,
                "is missing",
                field="dedup_key",
                hint="Pass dedup_key, or the header Idempotency-Key: the same for each repeat of this request.",
            )
        return body.dedup_key
    try:
        header.encode()
    except UnicodeEncodeError:
        raise Problem(422, "is not UTF-8", field="Idempotency-Key") from None
    if len(header) > 1 and header[0] == header[-1] == '"':
        header = re.sub(r"\\([\"\\])", r"\1", header[1:-1])
    if body.dedup_key not in {None, header}:
        raise Problem(422, "differs from dedup_key in the body", field="Idempotency-Key", hint="Pass one of the two.")
    return header
