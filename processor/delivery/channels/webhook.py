"""The webhook adapter: a signed POST to the provider's URL, or to the URL that is the recipient's address.

The body and the headers are the same for every attempt at a step except for the signature's time: providers that
honour keys refuse the same key with another body.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from contextvars import ContextVar
from urllib.parse import quote

import aiohttp
import msgspec
import structlog
from aiohttp.abc import AbstractResolver
from aiohttp.connector import Connection
from yarl import URL

from processor.delivery import signature, ssrf
from processor.delivery.channels.http_answers import CREDENTIALS, classify
from processor.delivery.channels.port import Answer, Call, Failed, NotFound, Rejected, Result, Sent, Unknown
from processor.delivery.channels_config import ProviderConfig, WebhookOptions
from schemas.records import UnknownPolicy

BODY_LIMIT = 64 * 1024
"""Bytes of an answer that are read; the rest is not worth its time."""
KEEP_ALIVE_SECONDS = 10.0
"""Below the idle time-outs of common servers, so that a call seldom meets a connection that is being closed."""

_log = structlog.get_logger("rung.delivery")


class _Exchange:
    """How far one request has come."""

    __slots__ = ("response", "sent")

    def __init__(self) -> None:
        self.sent = False
        """Whether the server may act on it."""
        self.response: aiohttp.ClientResponse | None = None


_EXCHANGE: ContextVar[_Exchange] = ContextVar("exchange")


class _Request(aiohttp.ClientRequest):
    """Notes the moment from which the server may act. The library's tracing would tell it too, and costs a fifth of a
    call."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Write the request to a connection that it was given."""
        if (exchange := _EXCHANGE.get(None)) is not None:
            exchange.sent = True
        if conn.transport is not None:
            # Above this limit the loop writes at once; below it, after all else that is ready: the call would wait.
            conn.transport.set_write_buffer_limits(high=0)
        return await super().send(conn)


class WebhookAdapter:
    """One HTTP endpoint, or the endpoints of recipients."""

    def __init__(
        self,
        provider: ProviderConfig,
        options: WebhookOptions,
        secrets: Mapping[str, str],
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._provider = provider
        self._options = options
        self._timeout = provider.timeout_ms / 1000
        self._own_url = None if options.url is None else URL(options.url)
        self._secret = _secret(options.secret_env, secrets)
        self._token = secrets[options.token_env] if options.token_env else None
        self._session = aiohttp.ClientSession(
            connector=_connector(provider, options, resolver),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            request_class=_Request,
            headers={"User-Agent": "rung", "Accept": "application/json", "Accept-Encoding": "identity"},
        )

    def target(self, to: str) -> str:
        """A recipient's URL has a window of its own; the provider's URL shares one."""
        if self._options.url is not None:
            return ""
        try:
            return str(URL(to).origin())
        except Exception:  # an address is whatever somebody wrote, and the library fails over it in many ways
            return "invalid"

    async def send(self, call: Call) -> Result:
        """POST the message."""
        try:
            url = self._url(call.to)
        except ssrf.ForbiddenAddressError:
            return Rejected("forbidden_address")
        except ssrf.BadUrlError:
            return Rejected("bad_address")
        body = _body(call)
        state = _Exchange()
        _EXCHANGE.set(state)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._post(url, body, self._headers(call.key, body), state)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            # A status that came counts, also where the rest of the answer did not.
            if state.response is not None:
                return classify(state.response.status, state.response.headers, b"", _now_ms())
            return _classify_error(error, sent=state.sent)

    async def lookup(self, key: str) -> Answer:
        """GET the lookup URL: 2xx says accepted, 404 says not."""
        if self._options.lookup_url is None:
            return Failed("lookup_unsupported")
        url = URL(self._options.lookup_url.replace("{key}", quote(key, safe="")), encoded=True)
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._session.get(url, headers=self._authorization(), allow_redirects=False) as response,
            ):
                result = classify(response.status, response.headers, await _read(response), _now_ms())
        except (TimeoutError, aiohttp.ClientError, OSError):
            return Failed("lookup_failed")
        if isinstance(result, Sent):
            return result
        if response.status in (404, 410):
            return NotFound()
        return Failed(
            f"lookup_http_{response.status}",
            retry_after_ms=result.retry_after_ms if isinstance(result, Failed) else None,
            pause_ms=result.pause_ms if isinstance(result, Failed) else None,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    def _url(self, to: str) -> URL:
        if self._own_url is not None:
            return self._own_url
        return ssrf.check_url(to, allow_private=self._options.allow_private)

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _headers(self, key: str, body: bytes) -> dict[str, str]:
        signed = signature.headers(self._secret, key, int(time.time()), body) if self._secret else {}
        return {"Content-Type": "application/json", "Idempotency-Key": key, **self._authorization(), **signed}

    async def _post(self, url: URL, body: bytes, headers: dict[str, str], state: _Exchange) -> Result:
        async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as response:
            if response.status in CREDENTIALS:
                _log.error("provider_refused_credentials", provider=self._provider.name, status=response.status)
            state.response = response
            return classify(response.status, response.headers, await _read(response), _now_ms())


def _connector(
    provider: ProviderConfig, options: WebhookOptions, resolver: AbstractResolver | None
) -> aiohttp.TCPConnector:
    if options.url is None and not options.allow_private:
        resolver = ssrf.PublicResolver(resolver)
    if provider.unknown is UnknownPolicy.HOLD:
        # A call on a kept connection that the server has just closed cannot be told from one that was accepted. Where
        # such a call would never be repeated, each call gets a connection of its own.
        return aiohttp.TCPConnector(limit=provider.concurrency, resolver=resolver, force_close=True)
    return aiohttp.TCPConnector(limit=provider.concurrency, resolver=resolver, keepalive_timeout=KEEP_ALIVE_SECONDS)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """As much of the body as there is within the limits; the status has decided already."""
    body = b""
    with contextlib.suppress(aiohttp.ClientError, OSError):
        while len(body) < BODY_LIMIT and (chunk := await response.content.read(BODY_LIMIT - len(body))):
            body += chunk
    if not response.content.at_eof():
        response.close()
    return body


def _classify_error(error: Exception, *, sent: bool) -> Result:
    match error:
        case _ if sent:
            return Unknown("timeout" if isinstance(error, TimeoutError) else "connection_lost")
        case aiohttp.ClientConnectorError(os_error=ssrf.ForbiddenAddressError()) | ssrf.ForbiddenAddressError():
            return Rejected("forbidden_address")
        case aiohttp.InvalidURL():
            return Rejected("bad_address")
        case aiohttp.ClientConnectorDNSError():
            return Failed("dns")
        case aiohttp.ClientSSLError() | aiohttp.ClientConnectorCertificateError():
            return Failed("tls")
        case TimeoutError():
            return Failed("connect_timeout")
        case _:
            return Failed("connect_failed")


def _body(call: Call) -> bytes:
    fields = {
        "key": call.key,
        "notification_id": call.notification_id,
        "step_no": call.step_no,
        "kind": call.kind,
        "channel": call.channel,
        "recipient": call.recipient,
        "to": call.to,
        "subject": call.message.subject,
        "text": call.message.text,
        "html": call.message.html,
        "data": call.data,
    }
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None}, order="sorted")


def _secret(name: str | None, secrets: Mapping[str, str]) -> bytes | None:
    if name is None:
        return None
    try:
        return signature.secret_bytes(secrets[name])
    except ValueError as error:
        raise ValueError(f"the environment variable {name}: {error}") from None


def _now_ms() -> int:
    return round(time.time() * 1000)
