"""The contract of adapters, held against each of them with a real server behind it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from processor.delivery.channels.port import Failed, Rejected, Sent, Unknown
from tests.contract.channels.conftest import Provider, listening

REFUSALS: dict[str, dict[str, dict[str, Any]]] = {
    "busy": {"smtp": {"status": 451, "text": "4.7.0 later"}, "http": {"status": 503}},
    "busy at the end": {"smtp": {"status": 452, "stage": "data", "text": "4.3.1 no space"}, "http": {"status": 500}},
    "gone": {"smtp": {"status": 550, "text": "5.1.1 no such user"}, "http": {"status": 410}},
    "bad message": {"smtp": {"status": 554, "stage": "data", "text": "5.7.1 spam"}, "http": {"status": 422}},
    "full": {"smtp": {"status": 552, "text": "5.2.2 full"}, "http": {"status": 400}},
}


def _refusal(provider: Provider, name: str) -> dict[str, Any]:
    return REFUSALS[name]["smtp" if provider.kind == "smtp" else "http"]


async def test_an_accepted_call_is_sent_with_its_key(provider: Provider) -> None:
    """The provider sees the key, and its own name for the message comes back."""
    call = provider.call()
    result = await provider.adapter().send(call)
    assert isinstance(result, Sent)
    assert result.provider_ref
    assert [(c["key"], c["accepted"]) for c in provider.calls()] == [(call.key, True)]


@pytest.mark.parametrize(
    "text", ["naïve café", "שלום עולם", "🎉🧑‍🚀", "e\u0301 and é", "日本語" * 20, "x" * 65_536, "a\0b"]
)
async def test_any_text_arrives_as_it_was(provider: Provider, text: str) -> None:
    """Every script, an emoji in a subject, 64 KB. A NUL, which mail cannot carry, is shown as the replacement sign."""
    call = provider.call(text=text, subject=text[:40])
    assert isinstance(await provider.adapter(timeout='"5s"').send(call), Sent)
    (received,) = provider.calls()
    if provider.kind == "smtp":
        assert received["text"].rstrip("\n") == text.replace("\0", "\N{REPLACEMENT CHARACTER}")
        assert received["subject"] == text[:40].replace("\0", " ")
    else:
        import json

        body = json.loads(received["body"])
        assert (body["text"], body["subject"]) == (text, text[:40])


@pytest.mark.parametrize("name", ["busy", "busy at the end"])
async def test_a_refusal_that_may_pass_is_failed(provider: Provider, name: str) -> None:
    """And the next call goes through, on the same adapter."""
    adapter = provider.adapter()
    provider.answers(_refusal(provider, name))
    assert isinstance(await adapter.send(provider.call()), Failed)
    assert isinstance(await adapter.send(provider.call()), Sent)
    assert [c["accepted"] for c in provider.calls()] == [False, True]


@pytest.mark.parametrize(("name", "alive"), [("gone", False), ("bad message", True), ("full", True)])
async def test_a_refusal_for_good_says_whether_the_contact_is_dead(provider: Provider, name: str, alive: bool) -> None:
    """The address, or this message."""
    adapter = provider.adapter()
    provider.answers(_refusal(provider, name))
    result = await adapter.send(provider.call())
    assert isinstance(result, Rejected)
    assert result.contact_alive is alive
    assert isinstance(await adapter.send(provider.call()), Sent)


async def test_silence_after_acceptance_is_unknown_and_in_time(provider: Provider) -> None:
    """The provider has the message and does not say so."""
    adapter, call = provider.adapter(), provider.call()
    provider.answers({"hang_ms": 2_000})
    started = time.monotonic()
    assert await adapter.send(call) == Unknown("timeout")
    assert time.monotonic() - started < 1.5
    assert [(c["key"], c["accepted"]) for c in provider.calls()] == [(call.key, True)]
    assert isinstance(await adapter.send(provider.call()), Sent)


async def test_a_connection_that_breaks_after_acceptance_is_unknown(provider: Provider) -> None:
    """Reset in place of an answer."""
    provider.answers({"drop": True, "accept": True, "stage": "data"})
    assert await provider.adapter().send(provider.call()) == Unknown("connection_lost")
    assert [c["accepted"] for c in provider.calls()] == [True]


async def test_a_port_on_which_nobody_listens_is_failed(provider: Provider) -> None:
    """Nothing left, so it is safe to send again anywhere."""
    adapter, call = provider.nowhere()
    assert await adapter.send(call) == Failed("connect_failed")


async def test_a_server_that_never_greets_is_failed_in_time(provider: Provider) -> None:
    """For SMTP: connected, and silence before the message. For HTTP the request leaves at once, so it is unknown."""

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(serve) as port:
        to = f"http://127.0.0.1:{port}/hook" if provider.kind == "recipient" else provider.address
        result = await provider.adapter(port).send(provider.call(to))
        assert result == (Failed("connect_timeout") if provider.kind == "smtp" else Unknown("timeout"))


@pytest.mark.parametrize("provider", ["smtp", "recipient"], indirect=True)
@pytest.mark.parametrize("to", ["", "\0", "a@b.example\r\nBcc: eve@example.test", "ada", "@", "\ud800@b.example"])
async def test_an_address_that_is_none_is_rejected_without_a_call(provider: Provider, to: str) -> None:
    """The contact is dead: it can never be reached. (A provider with its own URL judges addresses itself.)"""
    result = await provider.adapter().send(provider.call().__class__(**{**_fields(provider), "to": to}))
    assert result == Rejected("bad_address")
    assert provider.calls() == []


def _fields(provider: Provider) -> dict[str, Any]:
    call = provider.call()
    return {name: getattr(call, name) for name in call.__dataclass_fields__}


async def test_many_calls_at_once_all_arrive(provider: Provider) -> None:
    """Side by side on one adapter, and again on its kept connections."""
    adapter = provider.adapter(timeout='"5s"', concurrency=8)
    for _ in range(2):
        results = await asyncio.gather(*[adapter.send(provider.call()) for _ in range(8)])
        assert all(isinstance(result, Sent) for result in results)
    assert len({c["key"] for c in provider.calls()}) == 16


async def test_the_target_is_the_recipients_server_only_where_it_is_one(provider: Provider) -> None:
    """A recipient's 429 does not stop everyone else."""
    adapter = provider.adapter()
    target = adapter.target(provider.address)
    assert target == (provider.sink.url if provider.kind == "recipient" else "")
    assert isinstance(adapter.target("\0 no url"), str)
