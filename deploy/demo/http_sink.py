"""An HTTP server that stands for push, chat and webhook providers, answers by script and records every call.

`python -m deploy.demo.http_sink [--port 0] [--record FILE] [--script FILE]`; the first line of output is JSON with the
port. It takes POST on any path with the webhook adapter's body, honours `Idempotency-Key` (a key that was accepted is
answered as before and not accepted twice), and answers GET `/lookup/<key>` with 200 or 404.

A record: `at` (ms, arrival), `path`, `key`, `recipient`, `to`, `channel`, `kind`, `step_no`, `notification_id`,
`status`, `accepted` (taken as a new message), `repeat` (its key was accepted before), `in_flight` (calls under way,
this one included), `headers`, `body`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from deploy.demo.script import Script
from deploy.demo.sink import Recorder, announce, arguments, now_ms, until_told_to_stop

BODY_LIMIT = 4 * 1024 * 1024
_FIELDS = ("recipient", "to", "channel", "kind", "step_no", "notification_id")


class HttpSink:
    """The handlers."""

    def __init__(self, recorder: Recorder, script: Script) -> None:
        self._recorder = recorder
        self._script = script

    def app(self) -> web.Application:
        """The application to serve."""
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_get("/lookup/{key}", self.lookup)
        app.router.add_post("/{path:.*}", self.take)
        return app

    async def lookup(self, request: web.Request) -> web.Response:
        """Whether a key was accepted."""
        reference = self._recorder.accepted.get(request.match_info["key"])
        if reference is None:
            return web.json_response({"error": "no such message"}, status=404)
        return web.json_response({"id": reference})

    async def take(self, request: web.Request) -> web.StreamResponse:
        """Take one call, and answer by script."""
        self._recorder.in_flight += 1
        try:
            return await self._take(request, now_ms())
        finally:
            self._recorder.in_flight -= 1

    async def _take(self, request: web.Request, at: int) -> web.StreamResponse:
        text = (await request.read()).decode(errors="replace")
        body = _object(text)
        key = request.headers.get("Idempotency-Key", "")
        call: dict[str, Any] = {"at": at, "path": request.path, "key": key, **{f: body.get(f) for f in _FIELDS}}
        answer = self._script.answer(call, key)
        status = int(answer.get("status", 200))
        repeat = bool(key) and key in self._recorder.accepted
        accepted = 200 <= status < 300 and not repeat and (not answer.get("drop") or bool(answer.get("accept")))
        if accepted and key:
            self._recorder.accepted[key] = f"msg-{len(self._recorder.accepted) + 1}"
        call |= {"status": status, "accepted": accepted, "repeat": repeat, "in_flight": self._recorder.in_flight}
        call |= {"headers": {name.lower(): value for name, value in request.headers.items()}, "body": text}
        self._recorder.write(call)
        return await self._respond(request, answer, status, self._recorder.accepted.get(key, ""))

    async def _respond(
        self, request: web.Request, answer: dict[str, Any], status: int, reference: str
    ) -> web.StreamResponse:
        wait_ms = answer.get("delay_ms", 0) + answer.get("hang_ms", 0)
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)
        if answer.get("drop") and request.transport is not None:
            request.transport.close()
        headers = {str(name): str(value) for name, value in answer.get("headers", {}).items()}
        if answer.get("retry_after") is not None:
            headers["Retry-After"] = str(answer["retry_after"])
        default = {"id": reference} if 200 <= status < 300 else {"error": f"scripted {status}"}
        return web.json_response(answer.get("body", default), status=status, headers=headers)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


async def serve(host: str, port: int, recorder: Recorder, script: Script) -> None:
    """Serve until a signal comes."""
    runner = web.AppRunner(HttpSink(recorder, script).app(), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        announce(host, runner.addresses[0][1])
        await until_told_to_stop()
    finally:
        await runner.cleanup()
        recorder.close()


def main() -> None:
    """Run the sink as a process."""
    given = arguments("An HTTP server that answers by script and records every call.")
    asyncio.run(serve(given.host, given.port, Recorder(given.record), Script(given.script)))


if __name__ == "__main__":
    main()
