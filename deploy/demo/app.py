"""A small business application: it writes its own rows and asks for notifications in the same transactions.

It knows PostgreSQL and the SQL functions of Rung, and nothing of Kafka. `python -m deploy.demo.app` plays the plan in
real time and writes what it did, and when its commits returned, as JSON lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

from deploy.demo.plan import Person, Plan, Request, make_plan

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS shop;
CREATE TABLE IF NOT EXISTS shop.customer (name text PRIMARY KEY);
CREATE TABLE IF NOT EXISTS shop.matter (
  number int PRIMARY KEY, customer text NOT NULL, kind text NOT NULL, notification_id uuid NOT NULL,
  settled_at timestamptz
);
"""


class Application:
    """Plays one plan against one database."""

    def __init__(self, plan: Plan, database: str, diary: Path) -> None:
        self._plan = plan
        self._pool = ConnectionPool(database, min_size=4, max_size=8, open=True)
        self._diary = diary.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def play(self) -> None:
        """Register the customers, then do everything at its time; returns when all is done."""
        with self._pool.connection() as connection:
            connection.execute(SCHEMA)
            for person in self._plan.people:
                connection.execute("INSERT INTO shop.customer VALUES (%s)", (person.name,))
                self._profile(connection, person, {})
        start = time.monotonic()
        moments = sorted(self._moments(), key=lambda moment: moment[0])
        with ThreadPoolExecutor(8) as workers:
            jobs = []
            for at, action in moments:
                time.sleep(max(0.0, start + at - time.monotonic()))
                jobs.append(workers.submit(action))
            for job in jobs:
                job.result()
        self._pool.close()
        self._diary.close()

    def _moments(self) -> list[tuple[float, Callable[[], None]]]:
        found: list[tuple[float, Callable[[], None]]] = []
        for request in self._plan.requests:
            found.append((request.at, lambda r=request: self._open(r)))  # type: ignore[misc]
            if request.act_at is not None:
                found.append((request.act_at, lambda r=request: self._settle(r)))  # type: ignore[misc]
        for person in self._plan.people:
            if person.withdraws_consent_at is not None:
                found.append((person.withdraws_consent_at, lambda p=person: self._withdraw(p)))  # type: ignore[misc]
            if person.erased_at is not None:
                found.append((person.erased_at, lambda p=person: self._erase(p)))  # type: ignore[misc]
        return found

    def _open(self, request: Request) -> None:
        """One matter and its notification in one transaction; some are rolled back, as in life."""
        with self._pool.connection() as connection:
            identity = self._notify(connection, request, {"number": request.number})
            connection.execute(
                "INSERT INTO shop.matter (number, customer, kind, notification_id) VALUES (%s, %s, %s, %s)",
                (request.number, request.recipient, request.kind, identity),
            )
            if request.rolled_back:
                connection.rollback()
        self._note("rolled_back" if request.rolled_back else "committed", request, identity)
        if request.repeated:
            with self._pool.connection() as connection:
                self._notify(connection, request, {"number": request.number})
        if request.contradicted:
            with self._pool.connection() as connection:
                self._notify(connection, request, {"number": -1})

    def _notify(self, connection: psycopg.Connection[Any], request: Request, data: dict[str, Any]) -> str:
        row = connection.execute(
            "SELECT rung.notify(%s, %s, %s, %s)", (request.recipient, request.kind, Jsonb(data), request.dedup_key)
        ).fetchone()
        assert row is not None  # noqa: S101 - a function call yields one row
        return str(row[0])

    def _settle(self, request: Request) -> None:
        """The person acts: the matter is settled and the resolution written, in one transaction."""
        with self._pool.connection() as connection:
            connection.execute("UPDATE shop.matter SET settled_at = now() WHERE number = %s", (request.number,))
            connection.execute("SELECT rung.resolve(%s, %s, %s)", (request.recipient, request.dedup_key, "settled"))
        self._note("settled", request, None)

    def _profile(self, connection: psycopg.Connection[Any], person: Person, more: dict[str, Any]) -> None:
        profile = Jsonb({"addresses": person.addresses, **more})
        connection.execute("SELECT rung.put_recipient(%s, %s)", (person.name, profile))

    def _withdraw(self, person: Person) -> None:
        with self._pool.connection() as connection:
            self._profile(connection, person, {"consent": {"payment_action_required": False}})
        self._note("withdrawn", None, None, person.name)

    def _erase(self, person: Person) -> None:
        with self._pool.connection() as connection:
            connection.execute("SELECT rung.erase_recipient(%s)", (person.name,))
        self._note("erased", None, None, person.name)

    def _note(self, what: str, request: Request | None, identity: str | None, person: str | None = None) -> None:
        line = {
            "what": what,
            "number": request.number if request else None,
            "recipient": request.recipient if request else person,
            "notification_id": identity,
            "at": round(time.time() * 1000),
        }
        with self._lock:
            self._diary.write(json.dumps(line) + "\n")
            self._diary.flush()


def main() -> None:
    """Play the plan of a seed."""
    parser = argparse.ArgumentParser(description="The demo's business application.")
    parser.add_argument("--database", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--diary", type=Path, required=True)
    given = parser.parse_args()
    Application(make_plan(given.seed), given.database, given.diary).play()
    sys.stdout.write("played\n")


if __name__ == "__main__":
    main()
