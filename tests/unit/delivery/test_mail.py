"""An e-mail as bytes: every script, and no injected header."""

from __future__ import annotations

import contextlib
import uuid
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTPUTF8

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.delivery.channels.mail import BadAddressError, compose, mailbox
from processor.delivery.channels.port import Call
from processor.delivery.templates import Message

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SENDER = "Rüng <rung@example.test>"


def _compose(
    subject: str | None = "s", text: str | None = "t", html: str | None = None, to: str = "a@b.example"
) -> bytes:
    call = Call(
        key="11111111-1111-1111-1111-111111111111:0",
        notification_id=uuid.UUID(int=1),
        recipient="ada",
        kind="news",
        step_no=0,
        channel="email",
        to=to,
        message=Message(subject, text, html),
    )
    return compose(call, mailbox(to), SENDER, NOW)


def _read(raw: bytes) -> EmailMessage:
    return message_from_bytes(raw, _class=EmailMessage, policy=SMTPUTF8)


def test_the_key_is_in_the_message_id_and_in_a_header_of_its_own() -> None:
    """The same for every attempt; a colon may not stand in a Message-ID."""
    mail = _read(_compose())
    assert mail["Message-ID"] == "<11111111-1111-1111-1111-111111111111.0@example.test>"
    assert mail["X-Rung-Key"] == "11111111-1111-1111-1111-111111111111:0"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert str(mail["From"]) == SENDER


@pytest.mark.parametrize(
    "text", ["naïve", "שלום עולם", "مرحبا", "🎉" * 60, "e\u0301 é", "a" * 3000, "日本語" * 100, ".\n..\n"]
)
def test_any_script_arrives_as_it_was(text: str) -> None:
    """Subject and both bodies, in lines that every server takes."""
    raw = _compose(text.replace("\n", " ").strip(), text, f"<p>{text}</p>")
    mail = _read(raw)
    assert mail["Subject"] == text.replace("\n", " ").strip()
    plain, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content().rstrip("\r\n").replace("\r\n", "\n") == text.rstrip("\n")
    assert f"<p>{text}</p>" in html.get_content().replace("\r\n", "\n")
    assert raw.isascii()
    assert max(len(line) for line in raw.split(b"\r\n")) <= 998
    assert b"\n" not in raw.replace(b"\r\n", b"")


@given(st.text(max_size=120), st.text(max_size=300))
def test_no_text_breaks_the_message_or_adds_a_header(subject: str, text: str) -> None:
    """Line breaks, NUL, surrogates: the headers are ours alone, and the message parses."""
    mail = _read(_compose("x" + subject, text))
    assert [name.lower() for name in mail] == [
        "from",
        "to",
        "subject",
        "date",
        "message-id",
        "x-rung-key",
        "auto-submitted",
        "content-type",
        "content-transfer-encoding",
        "mime-version",
    ]
    assert mail["To"] == "a@b.example"


def test_injected_headers_end_up_in_the_subject() -> None:
    """A line break in a subject is a space."""
    mail = _read(_compose("hi\r\nBcc: eve@example.test\n\nbody"))
    assert mail["Bcc"] is None
    assert mail["Subject"] == "hi Bcc: eve@example.test body"


@pytest.mark.parametrize(
    "text",
    ["", "ada", "@b.example", "ada@", "a b@c.example", "a@b.example\r\nBcc: x@y.example", "a@b.example\0", "a@[",
     "x@[@b", "é@[b", "a@b.example, c@d.example", "Ada <a@b.example>", "<a@b.example>", "a@" + "b" * 300 + ".example",
     "a@b@c.example"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    """One plain address, and nothing that could be read as more."""
    with pytest.raises(BadAddressError):
        mailbox(text)


@given(st.text(st.sampled_from('ab@.[]<>()",:;\\é \x00-1'), max_size=12) | st.text(max_size=20))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    """The parser fails over texts in many ways; none of them gets through."""
    with contextlib.suppress(BadAddressError):
        assert "@" in mailbox(text).address


def test_addresses_outside_ascii() -> None:
    """A domain goes as punycode; a local part needs a server with SMTPUTF8."""
    assert mailbox("ada@bücher.example").address == "ada@xn--bcher-kva.example"
    assert not mailbox("ada@bücher.example").utf8
    assert mailbox("ädä@b.example").utf8
    assert "To: ädä@b.example".encode() in _compose(to="ädä@b.example")
