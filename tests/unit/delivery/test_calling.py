"""Which provider a claim goes to, and that no adapter can break a worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from processor.delivery import outcomes
from processor.delivery.caller import Answered, Caller
from processor.delivery.channels.port import Answer, Call, Failed, NotFound, Rejected, Result, Sent, Unknown
from processor.delivery.channels_config import ProviderConfig, parse_channels
from processor.delivery.limits import ProviderLimits, TokenBucket
from processor.delivery.metrics import DeliveryMetrics
from processor.delivery.routing import Router
from processor.delivery.scheduler import Claim
from processor.delivery.templates import Templates
from schemas.records import Delivery, UnknownPolicy
from tests.support.delivery import delivery, value, write_templates

TWO = parse_channels(
    '[channels.push]\nproviders = [{ adapter = "console", name = "a" }, { adapter = "console", name = "b" }]\n', "c"
)


class Scripted:
    """An adapter that answers what it is told to, or raises it."""

    def __init__(self, sent: Result | BaseException | None, found: Answer | BaseException | None = None) -> None:
        self.sent, self.found = sent, found
        self.calls: list[Call] = []

    def target(self, to: str, /) -> str:
        return to

    async def send(self, call: Call) -> Result:
        self.calls.append(call)
        return await self._give(self.sent)

    async def lookup(self, key: str, /) -> Answer:
        found = await self._give(self.found)
        assert not isinstance(found, Rejected | Unknown)
        return found

    async def close(self) -> None:
        """Nothing is held."""

    @staticmethod
    async def _give(what: object) -> object:
        if isinstance(what, BaseException):
            raise what
        if what is None:
            await asyncio.sleep(60)
        return what


async def _call(
    adapter: Scripted, folder: Path, claim: Delivery, timeout_ms: int = 2_000
) -> tuple[Answered, CollectorRegistry]:
    registry = CollectorRegistry()
    metrics = DeliveryMetrics(registry, [("a", "push")])
    (provider, _) = TWO["push"]
    config = ProviderConfig("push", "a", provider.options, UnknownPolicy.HOLD, timeout_ms)
    caller = Caller({"a": adapter}, Templates(write_templates(folder)), metrics)
    return await caller.call(claim, config), registry


@pytest.mark.parametrize("error", [RuntimeError("ada@example.test"), KeyError("x"), OSError("gone")])
async def test_an_exception_in_an_adapter_is_a_counted_failure(
    tmp_path: Path, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never a dead worker, and its text, which may hold an address, is not logged."""
    answered, registry = await _call(Scripted(error), tmp_path, delivery())
    assert answered.result == Failed("adapter_error")
    assert value(registry, "rung_delivery_adapter_errors_total", provider="a") == 1
    assert value(registry, "rung_delivery_attempts_total", provider="a", channel="push", outcome="failed") == 1
    assert value(registry, "rung_delivery_in_flight") == 0
    printed = capsys.readouterr()
    assert "ada@example.test" not in printed.out + printed.err


async def test_an_adapter_that_hangs_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it did is not known."""
    monkeypatch.setattr("processor.delivery.caller.GRACE_SECONDS", 0.01)
    answered, _ = await _call(Scripted(None), tmp_path, delivery(), timeout_ms=10)
    assert answered.result == Unknown("timeout")


async def test_a_message_that_cannot_be_made_is_not_called(tmp_path: Path) -> None:
    """A template that fails is a fault of the message, and no attempt."""
    adapter = Scripted(Sent())
    answered, registry = await _call(adapter, tmp_path, delivery(data={}))
    assert answered == Answered(Rejected("bad_template", contact_alive=True), None)
    assert adapter.calls == []
    assert value(registry, "rung_delivery_latency_seconds_count", provider="a") == 0


@pytest.mark.parametrize(
    ("found", "result", "sends"),
    [(Sent("m1"), Sent("m1"), 0), (NotFound(), Sent("m2"), 1), (Failed("lookup_failed"), Failed("lookup_failed"), 0)],
)
async def test_a_lookup_comes_before_the_message(tmp_path: Path, found: Answer, result: Result, sends: int) -> None:
    """Accepted before: nothing is sent. Not accepted: sent. No answer: later."""
    adapter = Scripted(Sent("m2"), found)
    answered, _ = await _call(adapter, tmp_path, delivery(lookup=True))
    assert answered.result == result
    assert len(adapter.calls) == sends


def _router(a: int = 0, b: int = 0) -> Router:
    limits = {
        name: ProviderLimits(TokenBucket(None, 1, 0), 1, closed_until=at) for name, at in {"a": a, "b": b}.items()
    }
    return Router(TWO, limits, lambda provider, address: f"{provider}:{address}")


@pytest.mark.parametrize(
    ("attempt", "pinned", "closed", "provider"),
    [
        (1, None, (0, 0), "a"),
        (2, None, (0, 0), "b"),
        (3, None, (0, 0), "a"),
        (1, None, (100, 0), "b"),
        (2, None, (0, 100), "a"),
        (1, None, (100, 100), "a"),
        (3, "b", (0, 100), "b"),
    ],
)
def test_attempts_go_round_the_providers_that_are_open(
    attempt: int, pinned: str | None, closed: tuple[int, int], provider: str
) -> None:
    """And a claim that names its provider stays with it, closed or not."""
    claim = Claim(delivery(attempt=attempt, provider=pinned, address="x"), 0, 0)
    _router(*closed).route(claim, 50)
    assert (claim.provider, claim.target) == (provider, f"{provider}:x")


def test_obstacles_are_named() -> None:
    """A channel without providers, and a provider that was taken out of the configuration."""
    router = _router()
    assert router.obstacle(delivery()) is None
    assert router.obstacle(delivery(channel="fax")) == "unknown_channel"
    assert router.obstacle(delivery(provider="z")) == "provider_gone"


def test_an_outcome_carries_what_the_processor_needs() -> None:
    """The policy for what is unknown, the wait, the contact, the reference."""
    (provider, _), claim = TWO["push"], delivery(attempt=2, claim=3)
    unknown = outcomes.answered(claim, provider, Answered(Unknown("timeout"), 9), 5)
    assert (unknown.outcome, unknown.unknown_policy, unknown.provider, unknown.latency_ms) == (
        "unknown",
        "resend",
        "a",
        9,
    )
    failed = outcomes.answered(claim, provider, Answered(Failed("http_429", 1_500, 1_500)), 5)
    assert (failed.retry_after_ms, failed.attempt, failed.claim, failed.at) == (1_500, 2, 3, 5)
    rejected = outcomes.answered(claim, provider, Answered(Rejected("smtp_550")), 5)
    assert (rejected.outcome, rejected.reason, rejected.contact_alive) == ("rejected", "smtp_550", False)
