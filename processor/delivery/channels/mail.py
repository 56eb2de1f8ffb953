"""One e-mail as bytes, right for every script and safe against injected headers. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime, parseaddr

from processor.delivery.channels.port import Call

ADDRESS_LIMIT = 254
"""RFC 5321, section 4.5.3.1.3: a path has at most 256 octets, with its brackets."""
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_BODY_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_ATEXT_DOT = re.compile(r"[^A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]")


class BadAddressError(ValueError):
    """The recipient's address is no mail address."""


@dataclass(frozen=True, slots=True)
class Mailbox:
    """An address as it goes on the wire: the domain in ASCII; `utf8` if the local part is not."""

    address: str
    utf8: bool


def mailbox(text: str) -> Mailbox:
    """The mailbox that an address names; a display name is not allowed.

    Raises:
        BadAddressError: it is no address, or holds control characters.
    """
    if not text.isprintable() or " " in text or len(text.encode(errors="replace")) > ADDRESS_LIMIT:
        raise BadAddressError("no mail address")
    local, at, domain = text.rpartition("@")
    try:
        ascii_domain = domain if domain.isascii() else domain.encode("idna").decode()
        # The parser knows RFC 5322 and not 6531, in which any character outside ASCII is a letter.
        parsed = Address(addr_spec=f"{''.join(c if c.isascii() else 'x' for c in local)}@{ascii_domain}")
    except Exception as error:  # an address is whatever somebody wrote, and the parser fails over it in many ways
        raise BadAddressError("no mail address") from error
    if not at or not parsed.username or not parsed.domain:
        raise BadAddressError("no mail address")
    return Mailbox(f"{local}@{ascii_domain}", not local.isascii())


def message_id(key: str, sender: Mailbox) -> str:
    """The Message-ID of an attempt key: the same for every attempt, so that mailboxes can tell repeats."""
    return f"<{_ATEXT_DOT.sub('.', key)}@{sender.address.rpartition('@')[2]}>"


def compose(call: Call, to: Mailbox, sender: str, now: datetime) -> bytes:
    """The message, in 7-bit lines unless the address itself needs UTF-8."""
    policy = (SMTPUTF8 if to.utf8 else SMTP).clone(raise_on_defect=False)
    name, address = parseaddr(sender)
    mail = EmailMessage(policy)
    mail["From"] = Address(display_name=name, addr_spec=address)
    mail["To"] = to.address
    mail["Subject"] = header_text(call.message.subject or call.kind)
    mail["Date"] = format_datetime(now.astimezone(UTC))
    mail["Message-ID"] = message_id(call.key, mailbox(address))
    mail["X-Rung-Key"] = header_text(call.key)
    # RFC 3834: keeps vacation responders quiet.
    mail["Auto-Submitted"] = "auto-generated"
    text, html = call.message.text, call.message.html
    if text is not None or html is None:
        mail.set_content(
            body_text(text or ""), charset="utf-8", cte="base64" if _dense(text or "") else "quoted-printable"
        )
    if html is not None:
        add = mail.add_alternative if text is not None else mail.set_content
        add(body_text(html), subtype="html", charset="utf-8", cte="base64" if _dense(html) else "quoted-printable")
    return mail.as_bytes()


def header_text(text: str) -> str:
    """Text that can stand in a header: one line, no control characters."""
    return _CONTROLS.sub(" ", text).encode(errors="replace").decode().strip()


def body_text(text: str) -> str:
    """Text that can stand in a body: RFC 5322 allows no NUL; a control character becomes the replacement sign."""
    return _BODY_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text).encode(errors="replace").decode()


def _dense(text: str) -> bool:
    """Whether base64 is shorter than quoted-printable."""
    return sum(not c.isascii() for c in text) * 6 > len(text)
