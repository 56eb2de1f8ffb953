"""The API's server: what stands around every request, and its life from start to stop."""

import asyncio
import hmac
import threading
import time
from collections.abc import Awaitable, Callable

import psycopg
import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry

from relay.api.config import ApiConfig
from relay.api.database import make_pool
from relay.api.metrics import ApiMetrics
from relay.api.problems import Problem, of_database, of_http, response
from relay.api.receipts import Receipts
from relay.api.routes import POOL, RECEIPTS, routes

log = structlog.get_logger("rung.api")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OnListening = Callable[[str, int], None]


def run(
    config: ApiConfig, stop: threading.Event, registry: CollectorRegistry, on_listening: OnListening | None = None
) -> None:
    """Serve until `stop` is set; then finish the requests under way, within `shutdown_seconds`.

    `on_listening` is called with the host and the port once the API takes requests.

    Raises:
        OSError: the address cannot be listened on.
    """
    asyncio.run(serve(config, stop, registry, on_listening))


async def serve(
    config: ApiConfig, stop: threading.Event, registry: CollectorRegistry, on_listening: OnListening | None
) -> None:
    """The same inside a running event loop."""
    pool = make_pool(config)
    receipts = None
    if config.kafka is not None:
        receipts = Receipts(config.kafka, config.naming, config.kafka_wait_seconds)
    app = make_app(config, ApiMetrics(registry))
    app[POOL] = pool
    if receipts is not None:
        app[RECEIPTS] = receipts
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=config.shutdown_seconds)
    try:
        await pool.open(wait=False)
        await runner.setup()
        site = web.TCPSite(runner, config.host, config.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        log.info("api_listening", host=host, port=port, receipts=receipts is not None)
        if on_listening is not None:
            on_listening(host, port)
        config.ready(True)
        await _until(stop, config.beat)
    finally:
        config.ready(False)
        await runner.cleanup()
        await pool.close()
        if receipts is not None:
            receipts.close()
        log.info("api_stopped")


async def _until(stop: threading.Event, beat: Callable[[], None]) -> None:
    """Wait for an event that another thread sets; a few looks a second cost nothing and need no thread."""
    while not stop.is_set():
        beat()
        await asyncio.sleep(0.1)


def make_app(config: ApiConfig, metrics: ApiMetrics) -> web.Application:
    """The application without its pool and producer."""
    app = web.Application(
        middlewares=[_measured(metrics), _answered, _authorised(config.token)], client_max_size=config.body_limit
    )
    app.add_routes(list(routes(receipts=config.kafka is not None)))
    return app


def _measured(metrics: ApiMetrics) -> Middleware:
    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.perf_counter()
        found = await handler(request)
        metrics.observe(_route(request), found.status, time.perf_counter() - began)
        return found

    return measure


def _route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return f"{request.method} {resource.canonical}" if resource is not None else request.method


@web.middleware
async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whatever goes wrong is answered as a problem; only what is our fault is 500, and logged."""
    try:
        return await handler(request)
    except Problem as problem:
        return response(problem)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        found = response(of_http(error))
        if "Allow" in error.headers:
            found.headers["Allow"] = error.headers["Allow"]
        return found
    except psycopg.Error as error:
        known = of_database(error)
        if known is None:
            log.exception("request_failed", route=_route(request), sqlstate=error.sqlstate)
            return response(Problem(500, "an error of ours; it is in the log"))
        if known.status == 503:
            log.warning("database_away", route=_route(request), error=type(error).__name__)
        return response(known)
    except Exception as error:
        log.exception("request_failed", route=_route(request), error=type(error).__name__)
        return response(Problem(500, "an error of ours; it is in the log"))


def _authorised(token: str | None) -> Middleware:
    @web.middleware
    async def authorise(request: web.Request, handler: Handler) -> web.StreamResponse:
        if token is not None and request.path.startswith("/v1/"):
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            # In constant time, so that a guess learns nothing from how long it took.
            right = hmac.compare_digest(given.strip().encode(errors="surrogateescape"), token.encode())
            if scheme.lower() != "bearer" or not right:
                raise Problem(401, "this API asks for a bearer token")
        return await handler(request)

    return authorise
