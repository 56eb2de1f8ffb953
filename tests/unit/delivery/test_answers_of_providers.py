"""What status codes mean, for HTTP and SMTP."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.delivery.channels import http_answers, smtp_answers
from processor.delivery.channels.port import Failed, Rejected, Result, Sent
from processor.delivery.channels.smtp_answers import Stage

ALIVE = {"contact_alive": True}


@pytest.mark.parametrize(
    ("status", "headers", "body", "result"),
    [
        (200, {}, b"", Sent()),
        (201, {}, b'{"id": "m1"}', Sent("m1")),
        (202, {}, b'{"id": 17}', Sent("17")),
        (200, {}, b'{"id": true}', Sent()),
        (200, {}, b'{"id": "a\\nb\xc3\xa9"}', Sent("a?b?")),
        (204, {"x-message-id": "h1"}, b"not json", Sent("h1")),
        (302, {}, b"", Failed("http_302")),
        (400, {}, b"", Rejected("http_400", **ALIVE)),
        (413, {}, b"", Rejected("http_413", **ALIVE)),
        (422, {}, b'{"error": "no"}', Rejected("http_422", **ALIVE)),
        (400, {}, b'{"error": "unregistered"}', Rejected("http_400")),
        (400, {}, b'{"error": {"code": "INVALID-RECIPIENT"}}', Rejected("http_400")),
        (451, {}, b"", Rejected("http_451", **ALIVE)),
        (404, {}, b"", Rejected("http_404")),
        (410, {}, b"", Rejected("http_410")),
        (401, {}, b"", Failed("http_401")),
        (403, {}, b'{"error": "blocked"}', Failed("http_403")),
        (408, {}, b"", Failed("http_408")),
        (409, {}, b"", Failed("http_409")),
        (425, {}, b"", Failed("http_425")),
        (429, {"retry-after": "2.5"}, b"", Failed("http_429", 2_500, 2_500)),
        (429, {}, b"", Failed("http_429", None, http_answers.PAUSE_MS)),
        (429, {"retry-after": "later"}, b"", Failed("http_429", None, http_answers.PAUSE_MS)),
        (500, {}, b"", Failed("http_500")),
        (503, {}, b"", Failed("http_503")),
        (503, {"retry-after": "Thu, 01 Jan 1970 00:00:07 GMT"}, b"", Failed("http_503", 6_000, 6_000)),
    ],
)
def test_http(status: int, headers: dict[str, str], body: bytes, result: Result) -> None:
    """Accepted, wrong address, wrong message, our fault, may pass."""
    assert http_answers.classify(status, headers, body, 1_000) == result


@given(st.integers(200, 599), st.binary(max_size=40))
def test_any_http_answer_has_a_result(status: int, body: bytes) -> None:
    """Only a 2xx is sent, and no body changes that."""
    assert isinstance(http_answers.classify(status, {}, body, 0), Sent) == (status < 300)


@pytest.mark.parametrize(
    ("stage", "code", "text", "result"),
    [
        (Stage.CONNECT, 421, "busy", Failed("smtp_421")),
        (Stage.CONNECT, 554, "no", Failed("smtp_554")),
        (Stage.LOGIN, 535, "5.7.8 bad", Failed("smtp_credentials")),
        (Stage.MAIL, 451, "later", Failed("smtp_451")),
        (Stage.MAIL, 550, "5.7.1 sender", Failed("smtp_550")),
        (Stage.MAIL, 552, "5.3.4 too large", Rejected("smtp_552", **ALIVE)),
        (Stage.RCPT, 450, "4.2.1 greylisted", Failed("smtp_450")),
        (Stage.RCPT, 550, "5.1.1 no such user", Rejected("smtp_550")),
        (Stage.RCPT, 550, "no such user", Rejected("smtp_550")),
        (Stage.RCPT, 554, "5.7.1 refused", Rejected("smtp_554")),
        (Stage.RCPT, 550, "5.2.1 disabled", Rejected("smtp_550")),
        (Stage.RCPT, 552, "5.2.2 full", Rejected("smtp_552", **ALIVE)),
        (Stage.RCPT, 550, "5.3.0 system", Rejected("smtp_550", **ALIVE)),
        (Stage.RCPT, 503, "5.5.1 order", Rejected("smtp_503", **ALIVE)),
        (Stage.RCPT, 553, "5.6.7 utf8", Rejected("smtp_553", **ALIVE)),
        (Stage.RCPT, 530, "log in", Failed("smtp_credentials")),
        (Stage.DATA, 452, "space", Failed("smtp_452")),
        (Stage.DATA, 554, "5.7.1 spam", Rejected("smtp_554", **ALIVE)),
        (Stage.DATA, 550, "5.1.1 no such user", Rejected("smtp_550")),
        (Stage.DATA, 354, "odd", Failed("smtp_protocol")),
        (Stage.RCPT, -1, "rubbish", Failed("smtp_protocol")),
    ],
)
def test_smtp(stage: Stage, code: int, text: str, result: Result) -> None:
    """The same code means the person at RCPT, the message at DATA, and us before."""
    assert smtp_answers.classify(stage, code, text) == result
