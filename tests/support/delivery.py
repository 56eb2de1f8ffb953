"""A delivery worker on real Kafka with real providers: its topics, records in, outcomes out, start and stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from deploy.topics import topic_config
from processor.delivery.channels_config import parse_channels
from processor.delivery.config import DeliveryConfig
from processor.delivery.service import run
from schemas.codec import AnyRecord, decode, encode, encode_key
from schemas.envelope import Envelope, to_headers
from schemas.profile import Profile
from schemas.records import Delivery, Outcome, RecipientProfile, Resolve
from schemas.topics import CLAIM_DEADLINE_MS, DEAD_LETTERS, DELIVERIES, OUTCOMES, RECIPIENTS, RESOLUTIONS, Naming, Topic
from tests.support.eventually import eventually
from tests.support.kafka import Record, create_topics, produce, read_all
from tests.support.kafka import Topic as TopicSpec

STOP_SECONDS = 15.0


def now_ms() -> int:
    """The wall clock, milliseconds since the epoch."""
    return round(time.time() * 1000)


def delivery(recipient: str = "ada", **fields: Any) -> Delivery:
    """A claim that was made now; `fields` replace what stands here."""
    now = now_ms()
    identity = fields.pop("notification_id", None) or uuid.uuid4()
    step_no = fields.pop("step_no", 0)
    values: dict[str, Any] = {
        "notification_id": identity,
        "recipient": recipient,
        "kind": "news",
        "dedup_key": f"d-{identity}",
        "step_no": step_no,
        "channel": "push",
        "address": f"token-{recipient}",
        "template": "news",
        "data": {"text": "hello"},
        "attempt": 1,
        "claim": 1,
        "key": f"{identity}:{step_no}",
        "claimed_at": now,
        "claim_deadline": now + CLAIM_DEADLINE_MS,
        "due_at": now,
        "expires_at": now + 3_600_000,
    }
    return Delivery(**(values | fields))


def write_templates(folder: Path, channels: tuple[str, ...] = ("push", "email")) -> Path:
    """The template `news` for these channels; it says the data's `text`."""
    place = folder / "templates"
    (place / "news").mkdir(parents=True, exist_ok=True)
    for channel in channels:
        body = "{% block subject %}News: {{ text }}{% endblock %}{% block text %}{{ text }}{% endblock %}"
        (place / "news" / f"{channel}.j2").write_text(body if channel == "email" else "{{ text }}", encoding="utf-8")
    return place


@dataclass
class Stage:
    """Topics of its own on a shared Kafka, and a configuration directory."""

    bootstrap: str
    naming: Naming
    folder: Path
    channels: str
    partitions: int = 4
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Only what a worker uses: the whole catalogue would take seconds for each test.
        wanted = (DELIVERIES, RESOLUTIONS, RECIPIENTS, OUTCOMES, DEAD_LETTERS)
        specs = {self.naming(t): TopicSpec(self.partitions, topic_config(t)) for t in wanted}
        create_topics(self.bootstrap, specs)
        write_templates(self.folder)
        (self.folder / "channels.toml").write_text(self.channels, encoding="utf-8")
        ladders = '[kinds.news]\nsteps = [{ channel = "push", after = "0s" }]\n'
        (self.folder / "ladders.toml").write_text(ladders, encoding="utf-8")

    @property
    def kafka(self) -> dict[str, str]:
        """The base configuration of every client."""
        return {"bootstrap.servers": self.bootstrap}

    def put(self, topic: Topic, *records: AnyRecord, at: int | None = None) -> list[Record]:
        """Write records as their service would."""
        rows = [
            (
                encode_key(record.recipient),
                encode(record),
                dict(to_headers(Envelope(str(uuid.uuid4()), topic.types[0], "/test", at or now_ms()))),
            )
            for record in records
        ]
        return produce(self.bootstrap, self.naming(topic), rows)

    def deliver(self, *claims: Delivery) -> None:
        """Write claims."""
        self.put(DELIVERIES, *claims)

    def resolve(self, claim: Delivery) -> None:
        """The person acts on what this claim is about."""
        self.put(RESOLUTIONS, Resolve(recipient=claim.recipient, dedup_key=claim.dedup_key, resolution="done"))

    def profile(self, recipient: str, profile: Profile) -> None:
        """A profile as the processor publishes it."""
        self.put(RECIPIENTS, RecipientProfile(recipient=recipient, profile=profile))

    def erase(self, recipient: str) -> None:
        """The tombstone of an erased recipient."""
        headers = dict(to_headers(Envelope(str(uuid.uuid4()), RecipientProfile.TYPE, "/test", now_ms())))
        produce(self.bootstrap, self.naming(RECIPIENTS), [(encode_key(recipient), None, headers)])

    def outcomes(self, count: int | None = None, timeout: float = 20.0) -> list[Outcome]:
        """All outcomes, after waiting for at least this many."""
        records = read_all(self.bootstrap, self.naming(OUTCOMES), until=count, timeout=timeout)
        found = [decode(OUTCOMES, r.key, r.value, [(n, v) for n, v in r.headers]).record for r in records]
        return [outcome for outcome in found if isinstance(outcome, Outcome)]

    def config(self, **fields: Any) -> DeliveryConfig:
        """A worker's configuration; `fields` replace what stands here."""
        values: dict[str, Any] = {
            "kafka": self.kafka,
            "naming": self.naming,
            "channels": parse_channels(self.channels, "channels.toml"),
            "templates_dir": self.folder / "templates",
            "session_timeout_ms": 6_000,
        }
        return DeliveryConfig(**(values | fields))

    @contextlib.contextmanager
    def worker(self, **fields: Any) -> Iterator[CollectorRegistry]:
        """A worker in a thread of the test; yields its metrics. It must end in order."""
        stop, registry, failures = threading.Event(), CollectorRegistry(), []
        config = self.config(**fields)

        def main() -> None:
            try:
                run(config, stop, registry)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=main, name="worker")
        thread.start()
        try:
            yield registry
        finally:
            stop.set()
            thread.join(STOP_SECONDS)
        assert not thread.is_alive(), "the worker did not stop in time"
        if failures:
            raise failures[0]

    def process(self, instance: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """A worker as a process of its own, as it runs in production; its log is kept. `close` ends it."""
        settings = {
            "RUNG_KAFKA": self.bootstrap,
            "RUNG_TOPIC_PREFIX": self.naming.prefix,
            "RUNG_CONFIG_DIR": str(self.folder),
            "RUNG_INSTANCE_ID": instance,
            "RUNG_METRICS_PORT": "0",
            **(environ or {}),
        }
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RUNG_")}
        with self._log(instance).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "deploy.cli", "deliver"], env={**clean, **settings}, stderr=log
            )
        self.processes.append(process)
        return process

    def events(self, instance: str, name: str) -> list[dict[str, Any]]:
        """The log lines of a process with this event name."""
        path = self._log(instance)
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        # librdkafka writes lines of its own between ours.
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in found if line.get("event") == name]

    def _log(self, instance: str) -> Path:
        return self.folder / f"{instance}.log"

    def close(self) -> None:
        """End all processes that still run."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def end(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM) -> int:
    """Signal a process and wait; returns its exit code."""
    process.send_signal(number)
    return process.wait(STOP_SECONDS)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    """A metric's value; 0 if it is not there yet."""
    return registry.get_sample_value(name, labels) or 0.0


def wait_until_reading(registry: CollectorRegistry, timeout: float = 30.0) -> None:
    """Wait until the worker has partitions."""
    eventually(
        lambda: value(registry, "rung_delivery_partitions") > 0, timeout=timeout, describe="the worker has partitions"
    )
