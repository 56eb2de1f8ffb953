"""An SMTP server that stands for a mail provider, answers by script and records every message.

`python -m deploy.demo.smtp_sink [--port 0] [--record FILE] [--script FILE]`; the first line of output is JSON with the
port. Rules may match `to` or `recipient`, which are the address of RCPT; answers are used up by each address
for itself.

A record: `at` (ms), `key` (header X-Rung-Key), `to`, `sender`, `message_id`, `subject`, `text`, `html`, `status`,
`stage` (`rcpt` or `data`), `accepted`, `repeat` (its key was accepted before; SMTP knows no keys, so it
is accepted all the same), `in_flight`, `smtputf8`. A call that is refused at `rcpt` has no key yet.
"""

from __future__ import annotations

import asyncio
from email import message_from_bytes
from email.message import EmailMessage, MIMEPart
from email.policy import default as email_policy
from typing import Any
from weakref import WeakKeyDictionary

from aiosmtpd.smtp import SMTP, Envelope, Session

from deploy.demo.script import Script
from deploy.demo.sink import Recorder, announce, arguments, now_ms, until_told_to_stop

SIZE_LIMIT = 8 * 1024 * 1024


class SmtpSink:
    """The handler that aiosmtpd calls; one for all connections."""

    def __init__(self, recorder: Recorder, script: Script) -> None:
        self._recorder = recorder
        self._script = script
        self._pending: WeakKeyDictionary[Envelope, dict[str, Any]] = WeakKeyDictionary()

    async def handle_RCPT(  # noqa: N802 - the name is aiosmtpd's
        self, server: SMTP, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Refuse or take a recipient; an answer for the data stage is kept until then."""
        call = {"to": address, "recipient": address}
        answer = self._script.answer(call, address)
        if answer.get("stage", "rcpt" if answer.get("status", 250) != 250 else "data") == "data":
            self._pending[envelope] = answer
        else:
            await self._wait(answer)
            if answer.get("status", 250) != 250 or answer.get("drop"):
                self._record(envelope, address, answer, None, stage=answer.get("stage", "rcpt"))
                return _reply(server, answer)
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - the name is aiosmtpd's
        self, server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        """Take a message."""
        self._recorder.in_flight += 1
        try:
            content = envelope.content if isinstance(envelope.content, bytes) else (envelope.content or "").encode()
            mail = message_from_bytes(content, _class=EmailMessage, policy=email_policy)
            answer = self._pending.pop(envelope, {})
            self._record(envelope, ", ".join(envelope.rcpt_tos), answer, mail, stage="data")
            await self._wait(answer)
            return _reply(server, answer)
        finally:
            self._recorder.in_flight -= 1

    def _record(
        self, envelope: Envelope, to: str, answer: dict[str, Any], mail: EmailMessage | None, stage: str
    ) -> None:
        status = int(answer.get("status", 250))
        key = str(mail["X-Rung-Key"] or "") if mail is not None else ""
        repeat = bool(key) and key in self._recorder.accepted
        accepted = status == 250 and (not answer.get("drop") or bool(answer.get("accept")))
        if accepted and key:
            self._recorder.accepted[key] = to
        call: dict[str, Any] = {"at": now_ms(), "key": key, "to": to, "sender": envelope.mail_from, "stage": stage}
        call |= {"status": status, "accepted": accepted, "repeat": repeat, "smtputf8": envelope.smtp_utf8}
        call |= {"in_flight": self._recorder.in_flight, **_parts(mail)}
        self._recorder.write(call)

    @staticmethod
    async def _wait(answer: dict[str, Any]) -> None:
        wait_ms = answer.get("delay_ms", 0) + answer.get("hang_ms", 0)
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)


def _parts(mail: EmailMessage | None) -> dict[str, Any]:
    if mail is None:
        return {}
    text, html = mail.get_body(("plain",)), mail.get_body(("html",))
    return {
        "subject": str(mail["Subject"] or ""),
        "message_id": str(mail["Message-ID"] or ""),
        "text": None if text is None else _content(text),
        "html": None if html is None else _content(html),
    }


def _content(part: MIMEPart) -> str:
    return str(part.get_content()).replace("\r\n", "\n")


def _reply(server: SMTP, answer: dict[str, Any]) -> str:
    if answer.get("drop") and server.transport is not None:
        server.transport.close()
    status = int(answer.get("status", 250))
    return f"{status} {answer.get('text', 'OK' if status == 250 else 'scripted')}"


async def serve(host: str, port: int, recorder: Recorder, script: Script) -> None:
    """Serve until a signal comes."""
    loop = asyncio.get_running_loop()
    sink = SmtpSink(recorder, script)
    server = await loop.create_server(
        # The host name is given: finding it may ask a name server that is not there.
        lambda: SMTP(
            sink, data_size_limit=SIZE_LIMIT, enable_SMTPUTF8=True, hostname="localhost", ident="sink", loop=loop
        ),
        host,
        port,
    )
    try:
        announce(host, server.sockets[0].getsockname()[1])
        await until_told_to_stop()
    finally:
        server.close()
        recorder.close()


def main() -> None:
    """Run the sink as a process."""
    given = arguments("An SMTP server that answers by script and records every message.")
    asyncio.run(serve(given.host, given.port, Recorder(given.record), Script(given.script)))


if __name__ == "__main__":
    main()
