"""What an HTTP answer means: one table from status codes to results. Pure.

| status | result | why |
|---|---|---|
| 2xx | sent | accepted |
| 3xx | failed | redirects are not followed: the new place was not checked, and a POST may become a GET |
| 400, 405, 406, 411, 413, 414, 415, 422, 431 and other 4xx | rejected, contact alive | the message is wrong |
| 404, 410 | rejected, contact dead | the address is gone |
| any of these 4xx whose JSON names a dead contact (`{"error": "unregistered"}`) | rejected, contact dead | |
| 401, 403, 407 | failed | our credentials; the person can do nothing about them |
| 402, 408, 409, 421, 423, 424, 425 | failed | may pass |
| 429 | failed, and no calls for a while | Retry-After, or a second |
| 5xx | failed; with Retry-After no calls until then | may pass |
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from processor.delivery.channels.port import Failed, Rejected, Result, Sent
from processor.delivery.retry_after import parse_retry_after

PAUSE_MS = 1_000
"""How long a provider that says 429 without a usable Retry-After is left alone; the retry itself follows the ladder's
backoff, which starts at the same length."""
REF_LIMIT = 200
CREDENTIALS = frozenset({401, 403, 407})

_MAY_PASS = frozenset({402, 408, 409, 421, 423, 424, 425})
_GONE = frozenset({404, 410})
_DEAD_CONTACT = frozenset(
    {
        "blocked",
        "bounced",
        "gone",
        "invalid_address",
        "invalid_recipient",
        "invalid_token",
        "not_registered",
        "recipient_not_found",
        "unknown_recipient",
        "unregistered",
        "unsubscribed",
    }
)
_ODD = re.compile(r"[^\x21-\x7e]")
_REF_HEADERS = ("x-message-id", "x-request-id")


def classify(status: int, headers: Mapping[str, str], body: bytes, now_ms: int) -> Result:
    """The result of an answer; `body` may be cut off. Header names are looked up in lower case or case-blind."""
    reason = f"http_{status}"
    if 200 <= status < 300:
        return Sent(_reference(headers, body))
    if status == 429 or status >= 500:
        wait = parse_retry_after(headers.get("retry-after"), now_ms)
        pause = PAUSE_MS if wait is None and status == 429 else wait
        return Failed(reason, retry_after_ms=wait, pause_ms=pause)
    if status < 400 or status in CREDENTIALS or status in _MAY_PASS:
        return Failed(reason)
    if status in _GONE or _names_dead_contact(body):
        return Rejected(reason)
    return Rejected(reason, contact_alive=True)


def _reference(headers: Mapping[str, str], body: bytes) -> str | None:
    fields = _fields(body)
    for name in ("id", "message_id", "name"):
        value = fields.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value):
            return _short(str(value))
    return next((_short(headers[name]) for name in _REF_HEADERS if headers.get(name)), None)


def _names_dead_contact(body: bytes) -> bool:
    """`{"error": "unregistered"}`, `{"code": …}`, or the same one level down under `error`."""
    fields = _fields(body)
    inner = fields.get("error")
    found = [fields.get("error"), fields.get("code")]
    if isinstance(inner, dict):
        found += [inner.get("code"), inner.get("status")]
    return any(isinstance(f, str) and f.lower().replace("-", "_") in _DEAD_CONTACT for f in found)


def _fields(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _short(text: str) -> str:
    """A provider's own words go into our records: printable, and not long."""
    return _ODD.sub("?", text[:REF_LIMIT])
