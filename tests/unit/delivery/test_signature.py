"""Webhook signatures against the vector of Standard Webhooks' own documentation."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from processor.delivery import signature


def test_the_published_vector() -> None:
    """The example that the libraries of Standard Webhooks are tested with."""
    secret = signature.secret_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = signature.sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_headers_sign_the_id_the_time_and_the_exact_bytes() -> None:
    """A receiver that recomputes the signature from what it sees gets the same."""
    headers = signature.headers(b"key", "id:0", 5, b"\xf0\x9f\x8e\x89")
    own = hmac.new(b"key", b"id:0.5.\xf0\x9f\x8e\x89", hashlib.sha256).digest()
    assert headers == {
        "webhook-id": "id:0",
        "webhook-timestamp": "5",
        "webhook-signature": "v1," + base64.b64encode(own).decode(),
    }


def test_secrets_are_base64_after_their_prefix_or_plain_text() -> None:
    """A mistyped secret is an error and not another key."""
    assert signature.secret_bytes("plain") == b"plain"
    assert signature.secret_bytes("whsec_AAAA") == b"\0\0\0"
    with pytest.raises(ValueError, match="no base64"):
        signature.secret_bytes("whsec_A-_A")
