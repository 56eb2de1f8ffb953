"""One provider call: fill the template, call the adapter, and say what became of the claim.

Whatever an adapter or a template does, the answer is a result; nothing here raises.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import structlog

from processor.delivery.channels.port import Adapter, Call, Failed, NotFound, Rejected, Result, Unknown
from processor.delivery.channels_config import ProviderConfig
from processor.delivery.metrics import DeliveryMetrics
from processor.delivery.templates import TemplateError, Templates
from schemas.records import Delivery

GRACE_SECONDS = 1.0
"""Adapters keep their own time-out; one that does not is cut off this much later."""

_log = structlog.get_logger("rung.delivery")


def longest_seconds(provider: ProviderConfig) -> float:
    """How long a call can take at the most: asked first, and then sent."""
    return 2 * (provider.timeout_ms / 1000 + GRACE_SECONDS)


@dataclass(frozen=True, slots=True)
class Answered:
    """A result, and how long the provider took; None where it was not called."""

    result: Result
    latency_ms: int | None = None


class Caller:
    """Makes calls. Holds the adapters by the provider's name."""

    def __init__(self, adapters: Mapping[str, Adapter], templates: Templates, metrics: DeliveryMetrics) -> None:
        self._adapters = adapters
        self._templates = templates
        self._metrics = metrics
        # The library checks and locks for a label each time; there are as many as providers.
        self._latency = cache(metrics.latency.labels)
        self._attempts = cache(metrics.attempts.labels)

    def target(self, provider: str, address: str) -> str:
        """The window that a call to this address waits for, besides the provider's own; that one alone if the adapter
        fails over the address."""
        try:
            return self._adapters[provider].target(address)
        except Exception as error:
            self._adapter_error(provider, error)
            return ""

    async def call(self, claim: Delivery, provider: ProviderConfig) -> Answered:
        """Make the call that a claim asks for."""
        try:
            message = self._templates.render(claim)
        except TemplateError as error:
            _log.error("template_failed", key=claim.key, template=claim.template, detail=str(error))
            return Answered(Rejected("bad_template", contact_alive=True))
        call = Call(
            key=claim.key,
            notification_id=claim.notification_id,
            recipient=claim.recipient,
            kind=claim.kind,
            step_no=claim.step_no,
            channel=claim.channel,
            to=claim.address,
            message=message,
            data=claim.data,
        )
        started = time.monotonic()
        self._metrics.in_flight.inc()
        try:
            result = await self._guarded(call, provider, lookup=claim.lookup)
        finally:
            self._metrics.in_flight.dec()
        seconds = time.monotonic() - started
        self._latency(provider.name).observe(seconds)
        self._attempts(provider.name, claim.channel, type(result).__name__.lower()).inc()
        return Answered(result, round(seconds * 1000))

    async def _guarded(self, call: Call, provider: ProviderConfig, *, lookup: bool) -> Result:
        adapter = self._adapters[provider.name]
        limit = provider.timeout_ms / 1000 + GRACE_SECONDS
        try:
            if lookup:
                async with asyncio.timeout(limit):
                    answer = await adapter.lookup(call.key)
                if not isinstance(answer, NotFound):
                    return answer
            async with asyncio.timeout(limit):
                return await adapter.send(call)
        except TimeoutError:
            return Unknown("timeout")
        except Exception as error:
            self._adapter_error(provider.name, error, key=call.key)
            return Failed("adapter_error")

    def _adapter_error(self, provider: str, error: Exception, **place: str) -> None:
        # The text of the error may hold an address, so only its type is told.
        _log.error("adapter_error", provider=provider, error=type(error).__name__, **place)
        self._metrics.adapter_errors.labels(provider).inc()
