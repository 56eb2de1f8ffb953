"""What only HTTP can do: Retry-After, signatures, look-ups, redirects, addresses inside."""

from __future__ import annotations

import json
import time
from email.utils import formatdate

import pytest

from processor.delivery import signature
from processor.delivery.channels.http_answers import PAUSE_MS
from processor.delivery.channels.port import Failed, NotFound, Rejected, Sent
from processor.delivery.channels.webhook import BODY_LIMIT
from tests.contract.channels.conftest import SECRETS, Provider

http_only = pytest.mark.parametrize("provider", ["webhook", "recipient"], indirect=True)
own_url = pytest.mark.parametrize("provider", ["webhook"], indirect=True)
recipients_url = pytest.mark.parametrize("provider", ["recipient"], indirect=True)


@http_only
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "least", "most"),
    [("2", 2_000, 2_000), ("1.25", 1_250, 1_250), ("date", 2_000, 4_000), (None, None, None), ("soon", None, None)],
)
async def test_retry_after_in_each_form(
    provider: Provider, status: int, header: str | None, least: int | None, most: int | None
) -> None:
    """The wait comes back; without one a 429 still gets a short pause."""
    text = formatdate(time.time() + 4, usegmt=True) if header == "date" else header
    provider.answers({"status": status, "retry_after": text})
    result = await provider.adapter().send(provider.call())
    assert isinstance(result, Failed)
    if least is None or most is None:
        assert result == Failed(f"http_{status}", None, PAUSE_MS if status == 429 else None)
    else:
        assert result.retry_after_ms is not None
        assert least <= result.retry_after_ms <= most
        assert result.pause_ms == result.retry_after_ms


@http_only
async def test_the_body_is_signed_and_the_same_for_every_attempt(provider: Provider) -> None:
    """A receiver can check the signature over the bytes that it got."""
    adapter, call = provider.adapter(), provider.call(text="🎉", data={"b": 1, "a": [None, "x"]})
    provider.answers({"status": 503})
    await adapter.send(call)
    assert isinstance(await adapter.send(call), Sent)
    first, second = provider.calls()
    assert first["body"] == second["body"]
    headers = second["headers"]
    assert headers["idempotency-key"] == headers["webhook-id"] == call.key
    expected = signature.sign(
        signature.secret_bytes(SECRETS["KEY"]), call.key, int(headers["webhook-timestamp"]), second["body"].encode()
    )
    assert headers["webhook-signature"] == expected
    body = json.loads(second["body"])
    assert {"key", "notification_id", "step_no", "kind", "channel", "recipient", "to", "text", "data"} <= body.keys()
    assert body["data"] == {"a": [None, "x"], "b": 1}


@own_url
async def test_a_token_goes_to_the_providers_own_url(provider: Provider) -> None:
    """As a bearer token."""
    await provider.adapter(token_env='"TOKEN"').send(provider.call())
    assert provider.calls()[0]["headers"]["authorization"] == "Bearer t0ken"


@http_only
async def test_a_key_that_was_accepted_is_not_accepted_twice(provider: Provider) -> None:
    """The provider honours the key: the second call gets the first one's reference."""
    adapter, call = provider.adapter(), provider.call()
    assert await adapter.send(call) == await adapter.send(call)
    assert [(c["accepted"], c["repeat"]) for c in provider.calls()] == [(True, False), (False, True)]


@own_url
async def test_a_provider_can_be_asked_for_a_key(provider: Provider) -> None:
    """Accepted, not accepted, and no answer."""
    lookup = f'"{provider.sink.url}/lookup/{{key}}"'
    adapter, call = provider.adapter(lookup_url=lookup, unknown='"lookup"'), provider.call()
    assert await adapter.lookup(call.key) == NotFound()
    sent = await adapter.send(call)
    assert await adapter.lookup(call.key) == sent
    elsewhere = provider.adapter(lookup_url='"http://127.0.0.1:1/{key}"')
    assert await elsewhere.lookup(call.key) == Failed("lookup_failed")
    assert await provider.adapter().lookup(call.key) == Failed("lookup_unsupported")


@http_only
async def test_a_redirect_is_not_followed(provider: Provider) -> None:
    """The new place was never checked."""
    provider.answers({"status": 307, "headers": {"Location": f"{provider.sink.url}/inside"}})
    assert await provider.adapter().send(provider.call()) == Failed("http_307")
    assert len(provider.calls()) == 1


@http_only
async def test_refused_credentials_are_our_fault(provider: Provider) -> None:
    """The contact lives."""
    provider.answers({"status": 401}, {"status": 403})
    adapter = provider.adapter()
    assert await adapter.send(provider.call()) == Failed("http_401")
    assert await adapter.send(provider.call()) == Failed("http_403")


@http_only
async def test_an_endless_answer_is_cut_off(provider: Provider) -> None:
    """The status decides; of the body only so much is read."""
    provider.answers({"body": {"id": "m1", "padding": "x" * (4 * BODY_LIMIT)}})
    assert await provider.adapter().send(provider.call()) == Sent(None)


@recipients_url
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
async def test_a_recipients_url_that_leads_inside_is_rejected(provider: Provider, host: str) -> None:
    """Literal, by name, in disguise: no connection is made."""
    adapter = provider.adapter(allow_private="false")
    result = await adapter.send(provider.call(f"http://{host}:{provider.sink.port}/hook"))
    assert result == Rejected("forbidden_address")
    assert provider.calls() == []


@recipients_url
@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1"])
async def test_odd_spellings_of_an_address_are_rejected(provider: Provider, host: str) -> None:
    """Some are no host to the client, the others lead to loopback and are refused for that."""
    adapter = provider.adapter(allow_private="false")
    result = await adapter.send(provider.call(f"http://{host}:{provider.sink.port}/hook"))
    assert isinstance(result, Rejected)
    assert result.reason in ("bad_address", "forbidden_address")
    assert provider.calls() == []


@recipients_url
async def test_a_name_that_does_not_resolve_may_later(provider: Provider) -> None:
    """DNS fails for many reasons, and most pass."""
    assert await provider.adapter(timeout='"5s"').send(provider.call("http://nowhere.invalid/")) == Failed("dns")
