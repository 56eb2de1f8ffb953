"""CloudEvents 1.0 in Kafka's binary content mode: the attributes travel as headers, the data is the value.

Source: CloudEvents 1.0, "Kafka Protocol Binding", section 3.2 (header names `ce_` plus the attribute).
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from operator import methodcaller
from typing import Any, Protocol

import msgspec

from schemas.errors import DecodeError
from schemas.reasons import DeadReason

Headers = list[tuple[str, bytes]]
RawHeaders = list[tuple[str, bytes | str | None]]
"""Headers as a client library hands them over."""
SPEC_VERSION = "1.0"
CONTENT_TYPE = "application/json"
DUE_AT_HEADER = "due_at"
"""On delay topics and `due`: the absolute moment, decimal milliseconds, so that the delayer need not read values."""

_ask = methodcaller("headers")
# The client library returns a half-made list and leaves the error pending. A call written out in Python is specialised
# by the interpreter once it is warm, and then nobody looks for that error until something else fails; this call looks.
ILLEGIBLE = "a header's name is not UTF-8; the headers are lost"

_CONSTANT: tuple[tuple[str, bytes], ...] = (
    ("ce_specversion", SPEC_VERSION.encode()),
    ("content-type", CONTENT_TYPE.encode()),
)
_VERSIONS = (SPEC_VERSION.encode(), SPEC_VERSION)


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The CloudEvents attributes of one record."""

    id: str
    type: str
    source: str
    time: int
    """When it happened, milliseconds since the epoch."""


class Carrier(Protocol):
    """A message of a client library."""

    def headers(self) -> Any:
        """Its headers; raises where a name is not UTF-8."""
        ...


def headers_of(message: Carrier) -> RawHeaders:
    """The headers of a message that was read.

    Raises:
        DecodeError: a header's name is not UTF-8. The client library gives out none of them then, and asking it a
            second time may crash the process: what it has kept is half made. `legible_headers` does not.
    """
    try:
        return list(_ask(message) or ())
    except (UnicodeDecodeError, SystemError) as error:
        raise DecodeError(DeadReason.BAD_HEADER, ILLEGIBLE) from error


def legible_headers(message: Carrier, fault: str = "") -> RawHeaders:
    """The headers of a message, or none where the client library cannot read them. `fault` is the detail of the error
    that an earlier reading of this message ended with, if it did."""
    if fault == ILLEGIBLE:
        return []
    try:
        return headers_of(message)
    except DecodeError:
        return []


def to_headers(envelope: Envelope) -> Headers:
    """The envelope as Kafka headers."""
    return headers_for(envelope.id, envelope.type, envelope.source, envelope.time)


def headers_for(event_id: str, event_type: str, source: str, time: int) -> Headers:
    """Likewise, of what an envelope would hold."""
    kind, origin = _named(event_type, source)
    return [("ce_id", event_id.encode()), kind, origin, ("ce_time", _rfc3339(time)), *_CONSTANT]


@lru_cache(maxsize=256)
def _named(event_type: str, source: str) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    # A service writes records of few types, all with its own name.
    return ("ce_type", event_type.encode()), ("ce_source", source.encode())


@lru_cache(maxsize=64)
def _rfc3339(time: int) -> bytes:
    # What one transaction or one decision writes has one time.
    seconds, milliseconds = divmod(time, 1000)
    return b"%b.%03dZ" % (_rfc3339_seconds(seconds), milliseconds)


@lru_cache(maxsize=256)
def _rfc3339_seconds(seconds: int) -> bytes:
    # Records come in the order of their times, more or less, and making the text of one costs as much as all else here.
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19].encode()


def from_headers(headers: Iterable[tuple[str, bytes | str | None]] | Mapping[str, bytes] | None) -> Envelope:
    """Read the envelope back; of a repeated header the last one counts.

    Raises:
        DecodeError: a required attribute is absent, no UTF-8, or no RFC 3339 time.
    """
    # In one step, for every record of every service comes through here: of a repeated name `dict` keeps the last value.
    found: dict[str, bytes | str | None] = dict(headers or ())
    event_id = _text("ce_id", found.get("ce_id"))
    event_type = _few("ce_type", found.get("ce_type"))
    source = _few("ce_source", found.get("ce_source"))
    version = found.get("ce_specversion")
    if version not in _VERSIONS and _text("ce_specversion", version) != SPEC_VERSION:
        raise DecodeError(DeadReason.BAD_HEADER, f"ce_specversion is not {SPEC_VERSION!r}")
    when = found.get("ce_time")
    return Envelope(event_id, event_type, source, _moment(when) if when else 0)


def _text(name: str, value: bytes | str | None) -> str:
    if not value:
        raise DecodeError(DeadReason.MISSING_HEADER, f"header {name} is missing")
    try:
        return value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(DeadReason.BAD_HEADER, f"header {name} is not UTF-8") from error


_known = lru_cache(maxsize=256)(_text)
_LONGEST_KNOWN = 256


def _few(name: str, value: bytes | str | None) -> str:
    """Of an attribute that has few values, as a rule. One that is long is not worth its place in memory."""
    return _known(name, value) if value and len(value) <= _LONGEST_KNOWN else _text(name, value)


@lru_cache(maxsize=256)
def _moment(value: bytes | str) -> int:
    # Records that come together were written together.
    try:
        moment = datetime.fromisoformat(_text("ce_time", value))
    except ValueError as error:
        raise DecodeError(DeadReason.BAD_HEADER, "ce_time is no RFC 3339 time") from error
    if moment.tzinfo is None:
        raise DecodeError(DeadReason.BAD_HEADER, "ce_time has no UTC offset")
    return round(moment.timestamp() * 1000)
