"""The public contract and nothing else: `rung up --json`, the SQL functions, an SMTP and an HTTP server of the test's
own, and the `delivery-events` topic."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg
from confluent_kafka import Consumer
from psycopg.types.json import Jsonb

from deploy.local.ports import free_port
from tests.support.eventually import eventually

LADDERS = """
[kinds.payment]
stop_on = "resolution"
expires_after = "90s"
retry = { max_attempts = 4, base = "300ms", cap = "2s", jitter = 0.0 }
steps = [
  { channel = "push", after = "0s" },
  { channel = "chat", after = "3s" },
  { channel = "email", after = "6s" },
]

[kinds.slow]
stop_on = "resolution"
expires_after = "10m"
steps = [
  { channel = "push", after = "0s" },
  { channel = "email", after = "5m" },
]

[kinds.brief]
stop_on = "resolution"
expires_after = "2s"
steps = [
  { channel = "push", after = "0s" },
  { channel = "email", after = "1s" },
]
"""
CHANNELS = """
[channels.push]
providers = [{{ adapter = "webhook", url = "http://127.0.0.1:{http}/push", unknown = "resend", timeout = "1s" }}]
[channels.chat]
providers = [{{ adapter = "webhook", url = "http://127.0.0.1:{http}/chat", unknown = "resend", timeout = "1s" }}]
[[channels.email.providers]]
adapter = "smtp"
host = "127.0.0.1"
port = {smtp}
tls = "none"
sender = "Shop <shop@example.test>"
timeout = "1s"
unknown = "hold"
"""
TEXT = "Matter {{ number }}\n"
MAIL = "{% block subject %}Matter{% endblock %}{% block text %}Matter {{ number }}{% endblock %}\n"
START_SECONDS = 120.0


class World:
    """Everything around one running system."""

    def __init__(self, folder: Path, engine: str) -> None:
        """Nothing runs before the block is entered; `engine` is the processor's."""
        self._folder = folder
        self._rules: dict[str, list[dict[str, Any]]] = {"http": [], "smtp": []}
        self._processes: list[subprocess.Popen[str]] = []
        self._events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._stop = threading.Event()
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("RUNG_") or k == "RUNG_CACHE_DIR"}
        self._environment |= {"XDG_STATE_HOME": str(folder / "xdg"), "RUNG_ENGINE": engine}
        self.where: dict[str, Any] = {}

    def __enter__(self) -> Self:
        try:
            ports = {server: free_port() for server in ("http", "smtp")}
            for server, port in ports.items():
                self._start_provider(server, port)
            self._write_configuration(ports)
            self._start_system()
        except BaseException:
            self.__exit__()
            raise
        self._reader = threading.Thread(target=self._read_events, daemon=True)
        self._reader.start()
        self._connection = psycopg.connect(self.where["database_url"], autocommit=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if hasattr(self, "_reader"):
            self._reader.join(10)
            self._connection.close()
        codes = [self._end(process) for process in reversed(self._processes)]
        assert codes == [0] * len(codes), "every process ends in order on SIGTERM"

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> int:
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(60)
        finally:
            process.kill()
            if process.stdout is not None:
                process.stdout.close()

    @property
    def system(self) -> subprocess.Popen[str]:
        """The process of `rung up`."""
        return self._processes[-1]

    @property
    def logs(self) -> Path:
        """The folder of the services' logs."""
        return self._folder / "state" / "logs"

    def service(self, name: str) -> psutil.Process:
        """The process of a service, by its command."""

        def find() -> psutil.Process | None:
            for child in psutil.Process(self.system.pid).children():
                if child.cmdline()[-2:] == ["deploy.cli", name]:
                    return child
            return None

        return eventually(find, describe=f"the process of {name}") or psutil.Process(-1)

    def rung(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command as in another terminal of the same user."""
        command = [sys.executable, "-m", "deploy.cli", *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=60, check=check)

    def _start_provider(self, server: str, port: int) -> None:
        command = [sys.executable, "-m", f"deploy.demo.{server}_sink", "--port", str(port)]
        command += ["--record", str(self._folder / f"{server}.jsonl"), "--script", str(self._folder / f"{server}.json")]
        self._launch(command)

    def _start_system(self) -> None:
        command = [sys.executable, "-m", "deploy.cli", "up", "--json", "--config", str(self._folder / "config")]
        process = self._launch([*command, "--state", str(self._folder / "state")])
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"rung up did not start: {(self._folder / 'processes.log').read_text()[-2000:]}")
        self.where = json.loads(line)

    def _launch(self, command: list[str]) -> subprocess.Popen[str]:
        with (self._folder / "processes.log").open("a") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=self._environment, text=True)
        self._processes.append(process)
        return process

    def _write_configuration(self, ports: dict[str, int]) -> None:
        config = self._folder / "config"
        for kind in ("payment", "slow", "brief"):
            folder = config / "templates" / kind
            folder.mkdir(parents=True)
            for channel in ("push", "chat"):
                (folder / f"{channel}.j2").write_text(TEXT)
            (folder / "email.j2").write_text(MAIL)
        (config / "ladders.toml").write_text(LADDERS)
        (config / "channels.toml").write_text(CHANNELS.format(**ports))

    def _read_events(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.where["kafka"],
                "group.id": "acceptance",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["delivery-events"])
        try:
            while not self._stop.is_set():
                message = consumer.poll(0.1)
                if message is None or message.error():
                    continue
                headers = dict(message.headers())
                event = {"type": headers["ce_type"].decode().removeprefix("rung."), "id": headers["ce_id"].decode()}
                self._events[message.key().decode()].append(event | json.loads(message.value()))
        finally:
            consumer.close()

    # What a business service does.

    def put(self, who: str, **profile: Any) -> None:
        """A profile with an address on every channel, unless given otherwise."""
        profile.setdefault("addresses", {"push": f"token-{who}", "chat": f"@{who}", "email": f"{who}@example.test"})
        self._connection.execute("SELECT rung.put_recipient(%s, %s)", (who, Jsonb(profile)))

    def notify(self, who: str, kind: str = "payment", key: str = "k1", number: int = 1) -> str:
        """Ask for a notification; its id."""
        row = self._connection.execute(
            "SELECT rung.notify(%s, %s, %s, %s)", (who, kind, Jsonb({"number": number}), key)
        ).fetchone()
        assert row is not None
        return str(row[0])

    def resolve(self, who: str, key: str = "k1") -> None:
        """The person acted."""
        self._connection.execute("SELECT rung.resolve(%s, %s, 'done')", (who, key))

    def erase(self, who: str) -> None:
        """The person wants to be forgotten."""
        self._connection.execute("SELECT rung.erase_recipient(%s)", (who,))

    # What the providers do and see.

    def script(self, who: str, channel: str, answers: list[dict[str, Any]], repeat: bool = False) -> None:
        """How the provider of a channel answers calls for this recipient, one answer a call of each key."""
        server = "smtp" if channel == "email" else "http"
        match = {"to": f"{who}@example.test"} if server == "smtp" else {"recipient": who, "channel": channel}
        self._rules[server].append({"match": match, "answers": answers, "repeat": repeat})
        draft = self._folder / f"{server}.json.new"
        draft.write_text(json.dumps({"rules": self._rules[server]}))
        draft.replace(self._folder / f"{server}.json")

    def calls(self, who: str) -> list[dict[str, Any]]:
        """All calls for this recipient at both servers, in the order of their arrival."""
        found = []
        for server in ("http", "smtp"):
            record = self._folder / f"{server}.jsonl"
            # The last line may be half there, and the text of a message may hold other line breaks.
            for line in record.read_text().split("\n")[:-1] if record.exists() else ():
                call = json.loads(line)
                if server == "smtp":
                    call["channel"] = "email"
                if who in {call.get("recipient"), str(call.get("to")).removesuffix("@example.test")}:
                    found.append(call)
        return sorted(found, key=lambda call: call["at"])

    def channels_called(self, who: str) -> list[str]:
        """The channels of all calls for this recipient, in order."""
        return [call["channel"] for call in self.calls(who)]

    # What readers of the topic see.

    def events(self, who: str, *types: str, key: str | None = None) -> list[dict[str, Any]]:
        """The delivery events of this recipient so far, of some types or of one dedup key."""
        return [
            event
            for event in list(self._events[who])
            if (not types or event["type"] in types) and (key is None or event["dedup_key"] == key)
        ]

    def wait_for(self, who: str, *types: str, count: int = 1, key: str | None = None, timeout: float = 30.0) -> Any:
        """The events of these types, once there are `count` of them."""
        return eventually(
            lambda: len(found := self.events(who, *types, key=key)) >= count and found,
            timeout,
            describe=lambda: f"{count} × {types} for {who}; there are {[e['type'] for e in self.events(who)]}",
        )
