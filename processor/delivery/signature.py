"""Signatures of webhooks, after Standard Webhooks: `v1,` and base64(HMAC-SHA256(secret, "id.timestamp.body"))."""

import base64
import binascii
import hashlib
import hmac

PREFIX = "whsec_"


def secret_bytes(secret: str) -> bytes:
    """The key behind a secret: base64 after `whsec_`; any other text stands for its own UTF-8 bytes.

    Raises:
        ValueError: it starts with `whsec_` and the rest is no base64.
    """
    if not secret.startswith(PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("the secret starts with whsec_ and what follows is no base64") from error


def sign(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`; `timestamp` in seconds since the epoch."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()


def headers(secret: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers that go with a signed body."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secret, message_id, timestamp, body),
    }
