"""The demo's providers: an SMTP server and an HTTP server as processes of their own, and how they answer whom."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deploy.demo.judge import Call
from deploy.demo.plan import Person, Plan, Trouble
from deploy.local.ports import free_port
from deploy.local.supervisor import Child, Supervisor

TIMEOUT = "1s"
SILENCE_MS = 3_000
"""Longer than the time-out: the call was accepted, and the worker cannot know."""


class Providers:
    """Both servers, their scripts and their records, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.smtp_port = free_port()
        self.http_port = free_port(frozenset({self.smtp_port}))

    def start(self, plan: Plan, supervisor: Supervisor) -> None:
        """Write the scripts and start both servers."""
        rules: dict[str, list[dict[str, Any]]] = {"smtp": [], "http": []}
        for person in plan.people:
            for server, rule in _rules(person):
                rules[server].append(rule)
        for server, port in (("smtp", self.smtp_port), ("http", self.http_port)):
            script = self._folder / f"{server}.script.json"
            script.write_text(json.dumps({"rules": rules[server]}), encoding="utf-8")
            command = [sys.executable, "-m", f"deploy.demo.{server}_sink", "--port", str(port)]
            command += ["--script", str(script), "--record", str(self._record(server))]
            supervisor.add(Child(name=f"{server} server", command=command, log=self._folder / f"{server}.log"))
            supervisor.start(f"{server} server")

    def channels(self) -> str:
        """The channels.toml that leads to these servers."""
        hook = "http://127.0.0.1:{port}/{channel}"
        lines = []
        for channel in ("push", "chat"):
            url = hook.format(port=self.http_port, channel=channel)
            provider = f'adapter = "webhook", url = "{url}", timeout = "{TIMEOUT}", unknown = "resend"'
            lines += [f"[channels.{channel}]", f"providers = [{{ {provider} }}]", ""]
        mail = f'adapter = "smtp", host = "127.0.0.1", port = {self.smtp_port}, tls = "none"'
        mail += f', sender = "The Shop <shop@example.test>", timeout = "{TIMEOUT}", unknown = "hold"'
        return "\n".join([*lines, "[channels.email]", f"providers = [{{ {mail} }}]", ""])

    def calls(self) -> list[Call]:
        """Everything that both servers received so far, with its key; a mailbox that was refused has none."""
        found = []
        for server in ("smtp", "http"):
            for line in _lines(self._record(server)):
                call = json.loads(line)
                if call["key"]:
                    channel = call.get("channel") or "email"
                    found.append(Call(call["key"], channel, call["at"], call["accepted"], call["repeat"]))
        return found

    def _record(self, server: str) -> Path:
        return self._folder / f"{server}.calls.jsonl"


def _lines(path: Path) -> Iterable[str]:
    """The whole lines of a file that a server is writing: its last one may be half there."""
    return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else ()


def _rules(person: Person) -> list[tuple[str, dict[str, Any]]]:
    """How the servers answer calls for this person; they accept where no rule says otherwise."""

    def http(channel: str, answers: list[dict[str, Any]], repeat: bool = False) -> tuple[str, dict[str, Any]]:
        match = {"recipient": person.name, "channel": channel}
        return "http", {"match": match, "answers": answers, "repeat": repeat}

    def smtp(answers: list[dict[str, Any]], repeat: bool = False) -> tuple[str, dict[str, Any]]:
        return "smtp", {"match": {"to": person.addresses["email"]}, "answers": answers, "repeat": repeat}

    gone, unknown = [{"status": 410}], [{"status": 550, "text": "5.1.1 no such mailbox"}]
    match person.trouble:
        case Trouble.NONE:
            return []
        case Trouble.PUSH_GONE:
            return [http("push", gone, repeat=True)]
        case Trouble.MAILBOX_UNKNOWN:
            return [smtp(unknown, repeat=True)]
        case Trouble.PUSH_BUSY:
            return [http("push", [{"status": 429, "retry_after": "1"}])]
        case Trouble.CHAT_DOWN:
            return [http("chat", [{"status": 503}, {"status": 503}])]
        case Trouble.PUSH_SILENT:
            return [http("push", [{"hang_ms": SILENCE_MS}])]
        case Trouble.MAIL_SILENT:
            return [smtp([{"hang_ms": SILENCE_MS, "stage": "data"}], repeat=True)]
        case Trouble.NOTHING_WORKS:
            return [
                http("push", gone, repeat=True),
                http("chat", gone, repeat=True),
                smtp(unknown, repeat=True),
            ]
