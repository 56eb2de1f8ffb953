"""What is derived instead of drawn: ids, fingerprints, jitter, backoff."""

from hashlib import blake2b
from uuid import UUID

import msgspec

from schemas.ids import NameSpace
from schemas.records import EventType, Notify
from schemas.state import RetryPolicy

NAMESPACE = UUID("5f0c7c1e-8a2b-5d0e-9a53-5b1d4f6f2c11")
"""The name space of every id that the domain derives."""

_IDS = NameSpace(NAMESPACE)
_PLAIN = msgspec.json.Encoder()
_SORTED = msgspec.json.Encoder(order="sorted")


def text_of(identity: UUID) -> str:
    """What `str` gives, in a fifth of the time."""
    return _PLAIN.encode(identity)[1:-1].decode()


def attempt_key(notification_id: UUID, step_no: int) -> str:
    """The idempotency key of a step. It has no attempt number: the usual reason for a time-out is a provider that
    accepted the message and did not say so, and then another key is a second message on someone's phone."""
    return f"{text_of(notification_id)}:{step_no}"


def event_id(notification_id: UUID, order: int, kind: EventType, step_no: int | None, cause: object) -> str:
    """The id of a delivery event: the same decision made again yields the same id. The order of acceptance keeps apart
    two notifications of one dedup key: once the first has left the state, the key, and so the id, may come again."""
    return _IDS.text(f"{text_of(notification_id)}|{order}|{kind}|{step_no}|{cause}".encode())


def fingerprint(text: str) -> str:
    """A short one-way mark of an id or an address: 64 bits, enough among one recipient's few."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def body_hash(notify: Notify) -> str:
    """What makes two requests with one dedup key the same: kind, data and expiry, whatever the order of keys."""
    return blake2b(_SORTED.encode((notify.kind, notify.data, notify.expires_at)), digest_size=16).hexdigest()


def bounded(number: int, most: int) -> int:
    """A number from outside within 0 and `most`: JSON's numbers have no end, and those of its readers do."""
    return max(0, min(number, most))


def backoff_ms(policy: RetryPolicy, attempt: int, key: str) -> int:
    """The wait after the `attempt`-th call failed: exponential, capped, and shorter by a share that depends on the
    key and the attempt, so that messages that failed together do not come back together."""
    exact = min(policy.cap_ms, policy.base_ms << min(attempt - 1, 40))
    draw = int.from_bytes(blake2b(f"{key}#{attempt}".encode(), digest_size=8).digest()) / 2**64
    return round(exact * (1 - policy.jitter * draw))
