"""What only SMTP has: kept connections, addresses outside ASCII, names of messages."""

from __future__ import annotations

import asyncio

import pytest

from processor.delivery.channels.port import Failed, Rejected, Sent, Unknown
from tests.contract.channels.conftest import Provider, listening

smtp_only = pytest.mark.parametrize("provider", ["smtp"], indirect=True)


@smtp_only
async def test_an_address_outside_ascii_goes_as_utf8(provider: Provider) -> None:
    """The server says SMTPUTF8."""
    assert isinstance(await provider.adapter().send(provider.call("ädä@bücher.example")), Sent)
    (received,) = provider.calls()
    assert (received["to"], received["smtputf8"]) == ("ädä@xn--bcher-kva.example", True)


@smtp_only
async def test_the_message_is_named_after_its_key(provider: Provider) -> None:
    """The same Message-ID for every attempt."""
    call = provider.call()
    await provider.adapter().send(call)
    assert provider.calls()[0]["message_id"] == f"<{call.key.replace(':', '.')}@example.test>"


@smtp_only
async def test_lines_that_begin_with_a_dot_arrive(provider: Provider) -> None:
    """A line with only a dot does not end the message early."""
    text = ".\n..\n.x\n.\nend"
    await provider.adapter().send(provider.call(text=text))
    assert provider.calls()[0]["text"].rstrip("\n") == text


@smtp_only
@pytest.mark.parametrize("goodbye", [b"", b"421 4.4.2 idle too long\r\n"])
async def test_a_kept_connection_that_the_server_closed_is_replaced(provider: Provider, goodbye: bytes) -> None:
    """Nothing of the second message had left, so it goes out on a new connection at once."""
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        writer.write(b"220 hello\r\n")
        while line := await reader.readline():
            if line.startswith(b"EHLO"):
                writer.write(b"250 hello\r\n")
            elif line.startswith(b"DATA"):
                writer.write(b"354 go\r\n")
                await reader.readuntil(b"\r\n.\r\n")
                served += 1
                writer.write(b"250 taken\r\n")
                await writer.drain()
                # The next command is answered with a goodbye, or with nothing.
                await reader.readline()
                writer.write(goodbye)
                break
            else:
                writer.write(b"250 fine\r\n")

    async with listening(serve) as port:
        adapter = provider.adapter(port, concurrency=1)
        for count in (1, 2, 3):
            assert await adapter.send(provider.call()) == Sent("taken")
            assert served == count


@smtp_only
@pytest.mark.parametrize(
    ("script", "result"),
    [
        ({b"": b"554 go away\r\n"}, Failed("smtp_554")),
        ({b"": b"421 busy\r\n"}, Failed("smtp_421")),
        ({b"MAIL": b"550 5.7.1 sender\r\n"}, Failed("smtp_550")),
        ({b"RCPT": b"421 4.3.2 closing\r\n"}, Failed("smtp_421")),
        ({b"RCPT": b"550 5.7.1 refused\r\n"}, Rejected("smtp_550")),
        ({b"DATA": b"503 5.5.1 order\r\n"}, Rejected("smtp_503", contact_alive=True)),
        ({b"RCPT": b"rubbish\r\n"}, Failed("smtp_protocol")),
        ({b"RCPT": b""}, Failed("connection_lost")),
        ({b"DATA": b""}, Failed("connection_lost")),
    ],
)
async def test_each_stage_of_the_dialogue(provider: Provider, script: dict[bytes, bytes], result: object) -> None:
    """Greeting, MAIL, RCPT, DATA; an empty answer closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(script.get(b"", b"220 hello\r\n"))
        while line := await reader.readline():
            answer = script.get(line[:4], b"250 fine\r\n")
            writer.write(answer)
            if not answer:
                break

    async with listening(serve) as port:
        assert await provider.adapter(port).send(provider.call()) == result


@smtp_only
@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (b"250 taken", Sent("taken")),
        (b"251 forwarded", Sent("forwarded")),
        (b"252 perhaps", Sent("perhaps")),
        (b"299 odd", Sent("odd")),
        (b"451 4.3.0 later", Failed("smtp_451")),
        (b"554 5.7.1 spam", Rejected("smtp_554", contact_alive=True)),
        (b"354 go on", Unknown("smtp_protocol")),
        (b"999 what", Unknown("smtp_protocol")),
        (b"100 hm", Unknown("smtp_protocol")),
        (b"rubbish", Unknown("smtp_protocol")),
    ],
)
async def test_the_answer_after_the_final_dot(provider: Provider, answer: bytes, result: object) -> None:
    """Its first digit is the verdict (RFC 5321, section 4.2.1); what is neither yes nor no leaves it open, for the mail
    may be on its way."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        while line := await reader.readline():
            if line.startswith(b"DATA"):
                writer.write(b"354 go\r\n")
                await reader.readuntil(b"\r\n.\r\n")
                writer.write(answer + b"\r\n")
            else:
                writer.write(b"250 fine\r\n")

    async with listening(serve) as port:
        assert await provider.adapter(port).send(provider.call()) == result


@smtp_only
async def test_a_server_without_smtputf8_cannot_reach_some_addresses(provider: Provider) -> None:
    """The contact lives: another server may."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        while await reader.readline():
            writer.write(b"250 fine\r\n")

    async with listening(serve) as port:
        result = await provider.adapter(port).send(provider.call("ädä@b.example"))
        assert result == Rejected("smtputf8_unsupported", contact_alive=True)
