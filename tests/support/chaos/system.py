"""Everything of one run: servers behind proxies, providers, the services, the load, the judge."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import psycopg
from confluent_kafka.admin import AdminClient

from deploy.configuration import load_configuration
from deploy.local.ports import HOST, free_port
from deploy.local.postgres import EmbeddedPostgres
from deploy.readiness import Readiness
from deploy.topics import ensure_topics
from relay.outbox.kinds import publish_kinds
from relay.outbox.migrations import migrate
from schemas.topics import Naming
from tests.support.chaos.fleet import Fleet
from tests.support.chaos.ledger import Events, Sinks, Verdict, judge
from tests.support.chaos.load import Load, now_ms
from tests.support.chaos.plan import AFTERS, Ask, ladders
from tests.support.chaos.report import Fault
from tests.support.chaos.servers import ProxiedKafka
from tests.support.eventually import eventually
from tests.support.proxy import Proxy
from tests.support.sinks import running_sink

PARTITIONS = 4
COUNTS = {"outbox": 2, "delays": 2, "processor": 2, "deliver": 2, "journal": 1}
READY_SECONDS = 120.0
RECOVERY_SECONDS = 120.0
WINDOW_MS = 2_000
"""Steps that are due so long after a fault show how long it was felt."""
BEFORE_MS = 10_000
LOOK_SECONDS = 0.1
CHANNELS = """
[channels.push]
providers = [{{ adapter = "webhook", url = "http://{host}:{http}/push", unknown = "resend", timeout = "5s" }}]
[channels.chat]
providers = [{{ adapter = "webhook", url = "http://{host}:{http}/chat", unknown = "resend", timeout = "5s" }}]
[[channels.email.providers]]
adapter = "smtp"
host = "{host}"
port = {smtp}
tls = "none"
sender = "Shop <shop@example.test>"
timeout = "5s"
unknown = "resend"
"""
TEXT = "Matter {{ number }}\n"
MAIL = "{% block subject %}Matter{% endblock %}{% block text %}Matter {{ number }}{% endblock %}\n"


class System:
    """One running system that faults are put into."""

    def __init__(self, folder: Path, *, per_second: float, seed: int, engine: str) -> None:
        """Nothing runs before the block is entered.

        Args:
            folder: for all that it writes.
            per_second: the rate of the load.
            seed: of the load.
            engine: the processor's.
        """
        self._folder = folder
        self._stack = ExitStack()
        self._per_second, self._seed, self._engine = per_second, seed, engine
        self.faults: list[Fault] = []
        self._faults_lock = threading.Lock()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self.http = self._stack.enter_context(running_sink("http", self._folder))
        self.smtp = self._stack.enter_context(running_sink("smtp", self._folder))
        proxied = free_port()
        self.kafka_proxy = self._stack.enter_context(Proxy(proxied))
        self.kafka = ProxiedKafka(self._folder / "servers", proxied, self.kafka_proxy.port)
        self.postgres = EmbeddedPostgres(self._folder / "servers", fsync=False)
        for server in (self.kafka, self.postgres):
            self._stack.enter_context(server)
        self.postgres_proxy = self._stack.enter_context(Proxy(self.postgres.port))
        self.config_dir = self._write_configuration()
        ensure_topics(self.client, Naming(), partitions=PARTITIONS, replication_factor=1)
        migrate(self.database_url)
        publish_kinds(self.database_url, load_configuration(self.config_dir).ladders)
        self.fleet = Fleet(self._folder, self.environment(), COUNTS)
        self._stack.callback(self._end_fleet)
        self.fleet.start_all()
        self.ready(self.fleet.metrics)
        self.events = Events(self.kafka.bootstrap_servers, PARTITIONS)
        self.events.start()
        self._stack.callback(self.events.close)
        self.sinks = Sinks([self.http.record, self.smtp.record])
        self.load = Load(self.database_url, self._per_second, self._seed)
        self.load.start()
        self._loading = True
        self.admin = AdminClient(self.client)

    def _end_fleet(self) -> None:
        killed = self.fleet.close()
        assert not killed, f"ended only by SIGKILL: {killed}"

    @property
    def client(self) -> dict[str, str]:
        """The judge's way to Kafka, past the proxy."""
        return {"bootstrap.servers": self.kafka.bootstrap_servers}

    @property
    def database_url(self) -> str:
        """The judge's way to PostgreSQL, past the proxy."""
        return self.postgres.url()

    def environment(self) -> dict[str, str]:
        """What every service is told."""
        return {
            "RUNG_KAFKA": f"{HOST}:{self.kafka_proxy.port}",
            "RUNG_DATABASE_URL": self.database_url.replace(f":{self.postgres.port}/", f":{self.postgres_proxy.port}/"),
            "RUNG_CONFIG_DIR": str(self.config_dir),
            "RUNG_PARTITIONS": str(PARTITIONS),
            "RUNG_ENGINE": self._engine,
        }

    def _write_configuration(self) -> Path:
        config = self._folder / "config"
        for kind in AFTERS:
            folder = config / "templates" / kind
            folder.mkdir(parents=True)
            for channel in ("push", "chat"):
                (folder / f"{channel}.j2").write_text(TEXT)
            (folder / "email.j2").write_text(MAIL)
        (config / "ladders.toml").write_text(ladders())
        (config / "channels.toml").write_text(CHANNELS.format(host=HOST, http=self.http.port, smtp=self.smtp.port))
        return config

    def ready(self, metrics: dict[str, str]) -> None:
        """Return when every process answers, every group is settled and every bucket has a relay."""
        readiness = Readiness(metrics)
        missing: list[str] = []

        def look() -> bool:
            missing[:] = readiness.missing()
            return not missing

        eventually(look, READY_SECONDS, 0.1, describe=lambda: f"ready: {missing}")

    # Faults

    def note(self, name: str, at: int, since: int | None = None) -> Fault:
        """Write down a fault that was put in."""
        fault = Fault(name, at, at if since is None else since)
        with self._faults_lock:
            self.faults.append(fault)
        return fault

    def recover(self, fault: Fault, seconds: float = RECOVERY_SECONDS) -> None:
        """Wait until every step that was due before, and in the two seconds after, was called; measures the time.

        Raises:
            AssertionError: that did not happen in time.
        """
        until = fault.since + WINDOW_MS
        open_steps: list[str] = []

        def look() -> bool:
            self.sinks.read()
            open_steps[:] = self._open(fault, until)
            return now_ms() > until and not open_steps

        text = lambda: f"recovered from {fault.name}: {len(open_steps)} steps open, {open_steps[:5]}"  # noqa: E731
        eventually(look, seconds, LOOK_SECONDS, describe=text)
        fault.recovered_ms = self.felt(fault, until)

    def _recent(self, since: int) -> Iterator[Ask]:
        """Asks that may have steps due after a moment."""
        for ask in reversed(self.load.asks):
            if ask.asked_at < since - BEFORE_MS - 60_000:
                return
            yield ask

    def _open(self, fault: Fault, until: int) -> list[str]:
        found = []
        for ask in self._recent(fault.at):
            if ask.committed_at is None and ask.asked_at <= until and ask.act_after is None:
                found.append(f"{ask.dedup_key}: not committed")
            if ask.settled_at is not None or ask.act_after is not None:
                continue
            for number, due in ask.due().items():
                if due <= until and (ask.notification_id, number) not in self.sinks.calls:
                    found.append(f"{ask.notification_id}:{number}")
        return found

    def felt(self, fault: Fault, until: int) -> int:
        """The longest that a step waited because of a fault: from its due time, or from the fault if it was due before
        (of a fault that lasts, from its end)."""
        longest = 0
        for ask in self._recent(fault.at):
            if ask.act_after is not None:
                continue
            for number, due in ask.due().items():
                if due > until or not (calls := self.sinks.calls.get((ask.notification_id, number))):
                    continue
                first = min(call.at for call in calls)
                if first > fault.at:
                    asked = due if number else min(due, ask.asked_at)
                    longest = max(longest, first - max(fault.since, asked))
        return longest

    @contextmanager
    def providers_down(self) -> Iterator[None]:
        """Both servers refuse every call for now."""
        self.http.answer({"match": {}, "per": "rule", "answers": [{"status": 503}], "repeat": True})
        self.smtp.answer({"match": {}, "per": "rule", "answers": [{"status": 451, "text": "later"}], "repeat": True})
        try:
            yield
        finally:
            self.http.answer()
            self.smtp.answer()

    def journalled(self, fault: Fault, seconds: float = RECOVERY_SECONDS) -> None:
        """Wait until the journal has the notifications asked for until two seconds after a fault; measures the time
        from the fault to the first moment at which one that was asked for after it is there."""
        eventually(lambda: now_ms() > fault.at + WINDOW_MS, 60.0)
        asked = [a.notification_id for a in self._recent(fault.at) if fault.at <= a.asked_at <= fault.at + WINDOW_MS]
        wanted = [identity for identity in asked if identity]
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            query = "SELECT count(*) FROM rung.notification WHERE notification_id = ANY(%s::uuid[])"

            def look() -> bool:
                row = connection.execute(query, (wanted,)).fetchone()
                return row is not None and row[0] == len(wanted)

            eventually(look, seconds, LOOK_SECONDS, describe=f"the journal has {len(wanted)} notifications")
        fault.recovered_ms = max(0, now_ms() - max(fault.since, fault.at))

    # The end

    def drain(self, seconds: float = RECOVERY_SECONDS) -> None:
        """Stop the load and wait until every ladder has ended."""
        if self._loading:
            self._loading = False
            self.load.stop()
        committed = [ask for ask in self.load.asks if ask.committed_at is not None]

        def look() -> bool:
            return all(ask.notification_id in self.events.ended for ask in committed)

        def text() -> str:
            left = [ask for ask in committed if ask.notification_id not in self.events.ended]
            return f"{len(left)} ladders that have not ended, {left[:3]}"

        eventually(look, seconds, 0.2, describe=text)

    def verdict(self) -> Verdict:
        """The judgement over all that was asked."""
        self.sinks.read()
        kills = [death.at for death in self.fleet.deaths if death.name.startswith("deliver")]
        return judge(self.load.asks, self.sinks.calls, self.events.stopped, kills)


def wait(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Wait for a condition; returns how long it took, in seconds."""
    started = time.monotonic()
    eventually(condition, seconds, 0.05, describe=what)
    return time.monotonic() - started
