"""The port of every service: `/metrics`, `/healthz` and `/readyz`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

from deploy.health import Health

Answer = Callable[[], tuple[bool, str]]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Requests are no news."""


def serve(port: int, registry: CollectorRegistry, health: Health) -> int:
    """Serve in threads that end with the process; returns the port, which matters if 0 was given.

    Raises:
        OSError: the port cannot be listened on.
    """
    metrics = make_wsgi_app(registry)
    answers: dict[str, Answer] = {"/healthz": health.healthz, "/readyz": health.readyz}

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        answer = answers.get(environ.get("PATH_INFO", ""))
        if answer is None:
            found: Iterable[bytes] = metrics(environ, start_response)
            return found
        well, reason = answer()
        start_response("200 OK" if well else "503 Service Unavailable", [("Content-Type", "application/json")])
        return [json.dumps({"status": "ok" if well else "unavailable", "reason": reason}).encode() + b"\n"]

    server = make_server("", port, app, _Server, _Handler)
    threading.Thread(target=server.serve_forever, name="health-server", daemon=True).start()
    return server.server_port
