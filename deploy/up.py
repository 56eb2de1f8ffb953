"""`rung up`: the whole system in the foreground, until it is told to stop."""

from __future__ import annotations

import shlex
import signal
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from deploy.running import Running, announce
from deploy.settings import Settings
from deploy.system import LocalSystem

POLL_SECONDS = 0.2
FAILED = 1


def up(settings: Settings, state_dir: Path | None, *, as_json: bool, force: bool = False) -> int:
    """Start everything, say where it is, keep it running; 0 when it was stopped in order, 1 when a server
    ended by itself."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    console = Console(stderr=True, highlight=False)
    with ExitStack() as stack:
        folder = state_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rung-")))
        system = LocalSystem(settings, folder, progress=lambda text: console.print(f"{text} …"), force=force)
        stack.callback(lambda: _stop(system, console))
        running = system.start()
        stack.enter_context(announce(running))
        if as_json:
            sys.stdout.write(msgspec.json.encode(running).decode() + "\n")
            sys.stdout.flush()
        else:
            _describe(running, temporary=state_dir is None)
        while not stop.wait(POLL_SECONDS):
            if failures := system.failures():
                console.print("\n".join(failures))
                return FAILED
            for ended in system.poll():
                again = f"; starting it again in {ended.restart_in:.1f} s" if ended.restart_in is not None else ""
                console.print(f"{ended.name} ended with {ended.reason}{again}; its log: {system.logs / ended.name}.log")
    return 0


def _stop(system: LocalSystem, console: Console) -> None:
    console.print("stopping …")
    for name in system.stop():
        console.print(f"{name} did not stop in time and was killed")


def _describe(running: Running, *, temporary: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table.grid(padding=(0, 2))
    table.add_row("Kafka", running.kafka)
    table.add_row("PostgreSQL", running.database_url)
    table.add_row("HTTP API", running.api)
    table.add_row("configuration", running.config_dir)
    table.add_row("state, logs", running.state_dir + (" (gone when this ends; --state keeps it)" if temporary else ""))
    for name, url in running.metrics.items():
        table.add_row(f"metrics of {name}", url)
    console.print("\nRung is running; Ctrl-C stops it.\n")
    console.print(table)
    profile = '{"addresses": {"push": "token-1", "chat": "@ada", "email": "ada@example.test"}}'
    console.print("\nTry from another terminal:\n")
    for line in (
        f"rung recipient put ada {shlex.quote(profile)}",
        'rung notify ada payment_action_required invoice-17 --data \'{"amount": "12 EUR"}\'',
        "rung explain ada invoice-17",
        "rung resolve ada invoice-17 paid",
        f"psql {shlex.quote(running.database_url)} -c \"SELECT rung.notify('ada', 'welcome', '{{}}', 'welcome-ada')\"",
    ):
        console.print(f"  {line}", markup=False)
    console.print()
