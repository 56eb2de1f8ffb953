"""The judge: what the load committed against what the SMTP and HTTP servers received.

A stop counts from the moment at which the system recorded it, which `delivery-events` tells; calls between the commit
of a resolution and its record are counted too.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from schemas.topics import DELIVERY_EVENTS
from tests.support.chaos.plan import STOPS_ON_SENT, Ask

IN_FLIGHT_MS = 1_500
"""The longest that a call may begin after the record of its stop: a worker reads it, and a call that has begun ends."""
CALL_MS = 10_000
"""The longest from the arrival of a call until its outcome is acknowledged, also where Kafka makes it wait."""
BEHIND_MS = 1_000
"""The longest that a server may take to read what a worker had sent before it died."""
Step = tuple[str, int]
"""Notification id and step."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as a server received it."""

    key: str
    channel: str
    at: int
    accepted: bool
    """The server said yes, to a new message or to a repeat."""


@dataclass(slots=True)
class Finding:
    """Something that must not be, or that is counted."""

    kind: str
    """`lost`, `after_stop`, `in_flight`, `before_record`, `duplicate`, `unexplained_duplicate`, `foreign`."""
    at: int
    text: str


class Sinks:
    """Reads the records of both servers as they grow."""

    def __init__(self, records: Sequence[Path]) -> None:
        self._places = dict.fromkeys(records, 0)
        self.calls: dict[Step, list[Call]] = defaultdict(list)

    def read(self) -> None:
        """Take in what is new."""
        for path, offset in self._places.items():
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._places[path] = offset + whole
            for line in data[:whole].split(b"\n")[:-1]:
                self._take(json.loads(line))

    def of(self, ask: Ask) -> list[Call]:
        """All calls of a notification so far."""
        return [call for found in _steps(ask, self.calls) for call in found]

    def _take(self, call: dict[str, Any]) -> None:
        if not call["key"]:
            return
        identity, _, number = call["key"].rpartition(":")
        said_yes = call["accepted"] or (call["repeat"] and 200 <= call["status"] < 300)
        self.calls[identity, int(number)].append(
            Call(call["key"], call.get("channel") or "email", call["at"], bool(said_yes))
        )


class Events:
    """Follows `delivery-events` from its beginning, over every outage."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "not-used",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._partitions = partitions
        self._thread = threading.Thread(target=self._follow, name="events", daemon=True)
        self.stopped: dict[str, int] = {}
        """Notification to the moment at which its resolution was recorded."""
        self.ended: set[str] = set()
        self.counts: dict[str, int] = defaultdict(int)

    def start(self) -> None:
        """Begin to read."""
        self._consumer.assign(
            [TopicPartition(DELIVERY_EVENTS.name, n, OFFSET_BEGINNING) for n in range(self._partitions)]
        )
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _follow(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is not None:
                    continue
                kind = dict(message.headers() or ())["ce_type"].decode().removeprefix("rung.")
                event = json.loads(message.value())
                self.counts[kind] += 1
                identity = event["notification_id"]
                if kind == "notification.resolved":
                    self.stopped.setdefault(identity, event["at"])
                if kind in {f"notification.{end}" for end in ("resolved", "expired", "finished", "dead", "erased")}:
                    self.ended.add(identity)


@dataclass(slots=True)
class Verdict:
    """All findings of a run."""

    asks: int = 0
    calls: int = 0
    slowest_ms: int = 0
    findings: list[Finding] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Finding]:
        """The findings of these kinds."""
        return [finding for finding in self.findings if finding.kind in kinds]

    @property
    def faults(self) -> list[str]:
        """What must not be, in words."""
        bad = self.of("lost", "after_stop", "unexplained_duplicate", "foreign")
        return [f"{finding.kind} at {finding.at}: {finding.text}" for finding in bad]


def judge(asks: Iterable[Ask], calls: dict[Step, list[Call]], stopped: dict[str, int], kills: Sequence[int]) -> Verdict:
    """Hold the calls against the asks; all ladders have ended. `kills` are the moments at which a worker died."""
    verdict = Verdict()
    by_id = {ask.notification_id: ask for ask in asks if ask.committed_at is not None}
    verdict.asks, verdict.calls = len(by_id), sum(map(len, calls.values()))
    verdict.slowest_ms = max((late for ask in by_id.values() for late in _lateness(ask, calls)), default=0)
    for (identity, _), found in calls.items():
        if identity not in by_id:
            verdict.findings.append(Finding("foreign", found[0].at, f"{found[0].key}: nobody asked for it"))
    for ask in by_id.values():
        verdict.findings += _missing(ask, calls, verdict.slowest_ms)
        verdict.findings += _late(ask, calls, stopped.get(ask.notification_id))
    for found in calls.values():
        verdict.findings += _repeats(found, kills)
    return verdict


def _steps(ask: Ask, calls: dict[Step, list[Call]]) -> list[list[Call]]:
    return [calls[ask.notification_id, n] for n in range(3) if (ask.notification_id, n) in calls]


def _lateness(ask: Ask, calls: dict[Step, list[Call]]) -> Iterable[int]:
    for number, due in ask.due().items():
        if found := calls.get((ask.notification_id, number)):
            yield min(call.at for call in found) - due


def _missing(ask: Ask, calls: dict[Step, list[Call]], slowest_ms: int) -> Iterable[Finding]:
    if ask.kind in STOPS_ON_SENT:
        if not any(call.accepted for found in _steps(ask, calls) for call in found):
            yield Finding("lost", ask.committed_at or 0, f"{ask.notification_id} ({ask.kind}): no call was accepted")
        return
    for number, due in ask.due().items():
        # A step that its stop overtook while it waited for the end of a fault is not lost.
        if ask.settled_at is not None and due + slowest_ms + IN_FLIGHT_MS >= ask.settled_at:
            continue
        if not any(call.accepted for call in calls.get((ask.notification_id, number), ())):
            yield Finding("lost", due, f"{ask.notification_id}:{number} ({ask.kind}, {ask.act}): no call was accepted")


def _late(ask: Ask, calls: dict[Step, list[Call]], stopped_at: int | None) -> Iterable[Finding]:
    if ask.settled_at is None:
        return
    for found in _steps(ask, calls):
        for call in found:
            if stopped_at is not None and call.at > stopped_at + IN_FLIGHT_MS:
                yield Finding("after_stop", call.at, f"{call.key}: called {call.at - stopped_at} ms after its stop")
            elif stopped_at is not None and call.at > stopped_at:
                yield Finding("in_flight", call.at, f"{call.key}: called {call.at - stopped_at} ms after its stop")
            elif call.at > ask.settled_at:
                yield Finding("before_record", call.at, f"{call.key}: called before its stop was recorded")


def _repeats(found: Sequence[Call], kills: Sequence[int]) -> Iterable[Finding]:
    """Every call after one that was accepted; they have one key, for calls are kept by it."""
    yes: Call | None = None
    for call in sorted(found, key=lambda call: call.at):
        if yes is not None:
            explained = any(yes.at - BEHIND_MS <= kill <= min(call.at, yes.at + CALL_MS) for kill in kills)
            kind = "duplicate" if explained else "unexplained_duplicate"
            yield Finding(kind, call.at, f"{call.key}: called again {call.at - yes.at} ms after it was accepted")
        if call.accepted and yes is None:
            yes = call
