"""The e-mail adapter: SMTP with a bounded pool of connections.

SMTP has no idempotency key. Whatever ends a call before the final dot left is `Failed`; silence after it is `Unknown`.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parseaddr

import aiosmtplib
import structlog
from aiosmtplib.protocol import SMTPProtocol

from processor.delivery.channels.mail import BadAddressError, Mailbox, compose, mailbox
from processor.delivery.channels.port import Answer, Call, Failed, Rejected, Result, Sent, Unknown
from processor.delivery.channels.smtp_answers import Stage, classify
from processor.delivery.channels_config import ProviderConfig, SmtpOptions

IDLE_SECONDS = 20.0
"""Kept connections are used again within this time; servers close idle ones, some after half a minute."""
USES = 100
"""Messages per connection: many servers refuse more on one."""

_log = structlog.get_logger("rung.delivery")


@dataclass(slots=True, eq=False)
class _Connection:
    client: aiosmtplib.SMTP
    used: int = 0
    last_used: float = field(default_factory=time.monotonic)


class _StaleError(Exception):
    """A kept connection was closed by the server; nothing of this message had left."""


class SmtpAdapter:
    """One mail server."""

    def __init__(self, provider: ProviderConfig, options: SmtpOptions, secrets: Mapping[str, str]) -> None:
        self._provider = provider
        self._options = options
        self._timeout = provider.timeout_ms / 1000
        self._username = secrets[options.username_env] if options.username_env else None
        self._password = secrets[options.password_env] if options.password_env else None
        self._sender = mailbox(parseaddr(options.sender)[1])
        self._idle: list[_Connection] = []

    def target(self, _to: str, /) -> str:
        """The server takes mail for everyone."""
        return ""

    async def send(self, call: Call) -> Result:
        """Hand the message to the server."""
        try:
            to = mailbox(call.to)
        except BadAddressError:
            return Rejected("bad_address")
        message = compose(call, to, self._options.sender, datetime.now(UTC))
        dialogue = _Dialogue()
        try:
            async with asyncio.timeout(self._timeout):
                return await self._send(to, message, dialogue)
        except (aiosmtplib.SMTPException, TimeoutError, OSError) as error:
            return _classify_error(error, dialogue, self._provider.name)

    async def lookup(self, _key: str, /) -> Answer:
        """SMTP cannot be asked."""
        return Failed("lookup_unsupported")

    async def close(self) -> None:
        """Say goodbye on the kept connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            with contextlib.suppress(aiosmtplib.SMTPException, TimeoutError, OSError):
                await connection.client.quit(timeout=1)
            connection.client.close()

    async def _send(self, to: Mailbox, message: bytes, dialogue: "_Dialogue") -> Result:
        connection = self._kept()
        if connection is not None:
            with contextlib.suppress(_StaleError):
                return await self._converse(connection, to, message, dialogue)
        dialogue.stage = Stage.CONNECT
        return await self._converse(await self._connect(dialogue), to, message, dialogue)

    async def _converse(self, connection: _Connection, to: Mailbox, message: bytes, dialogue: "_Dialogue") -> Result:
        kept = False
        try:
            result = await _transfer(connection, self._sender, to, message, dialogue)
            kept = connection.client.is_connected and connection.used < USES
            if kept and not isinstance(result, Sent):
                # The transaction is open: RSET, or a new connection next time.
                kept = await _reset(connection.client)
            return result
        finally:
            if kept:
                connection.last_used = time.monotonic()
                self._idle.append(connection)
            else:
                connection.client.close()

    def _kept(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.client.is_connected and time.monotonic() - connection.last_used < IDLE_SECONDS:
                return connection
            connection.client.close()
        return None

    async def _connect(self, dialogue: "_Dialogue") -> _Connection:
        tls = self._options.tls
        client = aiosmtplib.SMTP(
            hostname=self._options.host,
            port=self._options.port,
            use_tls=tls == "implicit",
            start_tls={"auto": None, "starttls": True}.get(tls, False),
            # Found without a name look-up, which may take longer than the call.
            local_hostname=self._sender.address.rpartition("@")[2],
            timeout=self._timeout,
        )
        try:
            await client.connect()
            if self._username is not None and self._password is not None:
                dialogue.stage = Stage.LOGIN
                await client.login(self._username, self._password)
        except BaseException:
            client.close()
            raise
        return _Connection(client)


@dataclass(slots=True)
class _Dialogue:
    """How far the exchange went."""

    stage: Stage = Stage.CONNECT
    dot_left: bool = False


async def _transfer(
    connection: _Connection, sender: Mailbox, to: Mailbox, message: bytes, dialogue: _Dialogue
) -> Result:
    client, reused = connection.client, connection.used > 0
    connection.used += 1
    dialogue.stage = Stage.MAIL
    options = ["SMTPUTF8", "BODY=8BITMIME"] if to.utf8 else []
    if to.utf8 and not client.supports_extension("smtputf8"):
        return Rejected("smtputf8_unsupported", contact_alive=True)
    encoding = "utf-8" if to.utf8 else "ascii"
    try:
        await client.mail(sender.address, options=options, encoding=encoding)
    except (aiosmtplib.SMTPServerDisconnected, aiosmtplib.SMTPSenderRefused) as error:
        # 421: the server closes an idle or a much used connection with its next answer.
        if reused and getattr(error, "code", 421) == 421:
            raise _StaleError from error
        raise
    dialogue.stage = Stage.RCPT
    await client.rcpt(to.address, encoding=encoding)
    dialogue.stage = Stage.DATA
    protocol = client.protocol
    if protocol is None:
        raise aiosmtplib.SMTPServerDisconnected("Connection lost")
    response = await _data(protocol, message, dialogue)
    return Sent(response[:200] or None)


async def _data(protocol: SMTPProtocol, message: bytes, dialogue: _Dialogue) -> str:
    """DATA in two steps, so that it is known whether the message had left when a connection broke."""
    response = await protocol.execute_command(b"DATA")
    if response.code != 354:
        raise aiosmtplib.SMTPDataError(response.code, response.message)
    dialogue.dot_left = True
    lines = message.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    # RFC 5321, section 4.5.2: a line that begins with a dot gets another one.
    stuffed = b"".join((b"." + line if line.startswith(b".") else line) + b"\r\n" for line in lines)
    protocol.write(stuffed + b".\r\n")
    response = await protocol.read_response()
    # RFC 5321, section 4.2.1: the first digit says it. An answer that is neither yes nor no leaves it open.
    if response.code // 100 != 2:
        dialogue.dot_left = response.code // 100 not in (4, 5)
        raise aiosmtplib.SMTPDataError(response.code, response.message)
    return "".join(c for c in response.message if " " <= c <= "~")


async def _reset(client: aiosmtplib.SMTP) -> bool:
    try:
        await client.rset()
    except (aiosmtplib.SMTPException, TimeoutError, OSError):
        return False
    return client.is_connected


def _classify_error(error: Exception, dialogue: _Dialogue, provider: str) -> Result:
    if dialogue.dot_left:
        if isinstance(error, aiosmtplib.SMTPResponseException):
            return Unknown("smtp_protocol")
        return Unknown("timeout" if isinstance(error, TimeoutError) else "connection_lost")
    match error:
        case aiosmtplib.SMTPAuthenticationError():
            result: Result = Failed("smtp_credentials")
        case aiosmtplib.SMTPResponseException():
            result = classify(dialogue.stage, error.code, error.message)
        case aiosmtplib.SMTPNotSupported():
            result = Failed("smtp_unsupported")
        case TimeoutError():
            result = Failed("connect_timeout" if dialogue.stage is Stage.CONNECT else "timeout")
        case aiosmtplib.SMTPConnectError() | ConnectionError() | OSError():
            result = Failed("connect_failed" if dialogue.stage is Stage.CONNECT else "connection_lost")
        case _:
            result = Failed("smtp_protocol")
    if result in (Failed("smtp_credentials"), Failed("smtp_unsupported")):
        _log.error("provider_refused_credentials", provider=provider, stage=dialogue.stage.value)
    return result
