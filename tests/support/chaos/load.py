"""The business application of the crash suite: asks at a steady rate, acts, and goes on when its database is away."""

from __future__ import annotations

import heapq
import itertools
import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from tests.support.chaos.plan import PEOPLE, Ask, draw

WORKERS = 6
RETRY_SECONDS = 0.1
Action = Callable[["psycopg.Connection[Any]"], None]


def now_ms() -> int:
    """The wall clock, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Load:
    """Asks and acts from threads of its own until it is stopped."""

    def __init__(self, database_url: str, per_second: float, seed: int) -> None:
        self.asks: list[Ask] = []
        """Everything that was asked for so far, in order; its parts are filled in as they happen."""
        self._url = database_url
        self._interval = 1 / per_second
        self._random = random.Random(seed)
        self._jobs: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._settling = threading.Event()
        self._threads = [threading.Thread(target=self._work, name=f"load-{n}", daemon=True) for n in range(WORKERS)]
        self._clock = threading.Thread(target=self._tick, name="load", daemon=True)

    def start(self) -> None:
        """Register the people and begin."""
        with psycopg.connect(self._url) as connection:
            for number in range(PEOPLE):
                who = f"person-{number:03}"
                addresses = {"push": f"token-{who}", "chat": f"@{who}", "email": f"{who}@example.test"}
                connection.execute("SELECT rung.put_recipient(%s, %s)", (who, Jsonb({"addresses": addresses})))
        for thread in (*self._threads, self._clock):
            thread.start()

    def stop(self) -> None:
        """Ask for nothing more; returns when every person who was to act has acted and all is committed."""
        self._stop.set()
        self._clock.join()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def ask(self, recipient: str, kind: str) -> Ask:
        """An ask besides the steady ones: its caller makes the request, and adds it to `asks` once it is committed."""
        ask = draw(1_000_000 + len(self.asks), now_ms(), random.Random(0))
        ask.recipient, ask.kind, ask.act_after = recipient, kind, None
        return ask

    def _tick(self) -> None:
        started = time.monotonic()
        later: list[tuple[float, int, Action]] = []
        order = itertools.count()
        number = 0
        while not self._stop.is_set() or later:
            now = time.monotonic()
            while later and later[0][0] <= now:
                self._jobs.put(heapq.heappop(later)[2])
            if not self._stop.is_set() and started + number * self._interval <= now:
                ask = draw(number, now_ms(), self._random)
                self.asks.append(ask)
                number += 1
                first, second = self._notify(ask), self._resolve(ask)
                if ask.act_after is None:
                    self._jobs.put(first)
                elif ask.act_after < 0:
                    self._jobs.put(second)
                    heapq.heappush(later, (now - ask.act_after, next(order), first))
                else:
                    self._jobs.put(first)
                    heapq.heappush(later, (now + ask.act_after, next(order), second))
            self._settling.wait(0.005)

    def _work(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        while (job := self._jobs.get()) is not None:
            while True:
                try:
                    if connection is None or connection.closed:
                        connection = psycopg.connect(self._url, autocommit=True, connect_timeout=5)
                    job(connection)
                    break
                except psycopg.OperationalError:
                    if connection is not None:
                        connection.close()
                    self._settling.wait(RETRY_SECONDS)
        if connection is not None:
            connection.close()

    @staticmethod
    def _notify(ask: Ask) -> Action:
        def action(connection: psycopg.Connection[Any]) -> None:
            notify(connection, ask)
            ask.committed_at = now_ms()

        return action

    @staticmethod
    def _resolve(ask: Ask) -> Action:
        def action(connection: psycopg.Connection[Any]) -> None:
            connection.execute("SELECT rung.resolve(%s, %s, 'done')", (ask.recipient, ask.dedup_key))
            ask.settled_at = now_ms()

        return action


def notify(connection: psycopg.Connection[Any], ask: Ask) -> None:
    """Make the request of an ask; what is asked again after a lost answer has the same key and body."""
    row = connection.execute(
        "SELECT rung.notify(%s, %s, %s, %s)", (ask.recipient, ask.kind, Jsonb({"number": ask.number}), ask.dedup_key)
    ).fetchone()
    assert row is not None
    ask.notification_id = str(row[0])
