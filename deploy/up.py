"""`rung up`: the whole system in the foreground, until it is told to stop."""

from __future__ import annotations

import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from deploy.hints import hints, program
from deploy.running import Running, announce
from deploy.settings import Settings
from deploy.signals import stop_on_signals
from deploy.system import LocalSystem, StartInterrupted

POLL_SECONDS = 0.2
FAILED = 1
INTERRUPTED = 130


def up(settings: Settings, state_dir: Path | None, *, as_json: bool, force: bool = False) -> int:
    """Start everything, say where it is, keep it running; 0 when it was stopped in order, 130 when it was told to
    stop before it had started, 1 when a server ended by itself."""
    stop = threading.Event()
    stop_on_signals(stop)
    console = Console(stderr=True, highlight=False, markup=False)
    with ExitStack() as stack:
        folder = state_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rung-")))
        system = LocalSystem(settings, folder, progress=lambda text: console.print(f"{text} …"), force=force, stop=stop)
        try:
            running = system.start()
        except StartInterrupted:
            console.print("interrupted; everything that had started is stopped")
            return INTERRUPTED
        stack.callback(lambda: _stop(system, console))
        stack.enter_context(announce(running))
        messages = None if as_json else Follower(system.messages)
        if as_json:
            sys.stdout.write(msgspec.json.encode(running).decode() + "\n")
            sys.stdout.flush()
        else:
            _describe(running, system, temporary=state_dir is None)
        return _watch(system, console, stop, messages)


def _watch(system: LocalSystem, console: Console, stop: threading.Event, messages: Follower | None) -> int:
    while not stop.wait(POLL_SECONDS):
        for line in messages.lines() if messages is not None else ():
            print(line, flush=True)
        if failures := system.failures():
            console.print("\n".join(failures))
            return FAILED
        for ended in system.poll():
            again = f"; starting it again in {ended.restart_in:.1f} s" if ended.restart_in is not None else ""
            console.print(f"{ended.name} ended with {ended.reason}{again}; its log: {system.logs / ended.name}.log")
    return 0


class Follower:
    """The lines that are added to a file, as `tail -f` shows them."""

    def __init__(self, path: Path) -> None:
        """Begin at the end of what is there now; the file need not exist yet."""
        self._path = path
        self._position = path.stat().st_size if path.exists() else 0

    def lines(self) -> list[str]:
        """The whole lines that came since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                whole, end, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._position += len(whole) + len(end)
        return whole.decode("utf-8", "replace").split("\n") if end else []


def _stop(system: LocalSystem, console: Console) -> None:
    console.print("stopping …")
    for name in system.stop():
        console.print(f"{name} did not stop in time and was killed")


def _describe(running: Running, system: LocalSystem, *, temporary: bool) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    table = Table.grid(padding=(0, 2))
    table.add_row("Kafka", running.kafka)
    table.add_row("PostgreSQL", running.database_url)
    table.add_row("HTTP API", running.api)
    table.add_row("configuration", running.config_dir)
    table.add_row("state, logs", running.state_dir + (" (gone when this ends; --state keeps it)" if temporary else ""))
    table.add_row("messages", f"{system.messages} (shown below, too)")
    for name, url in running.metrics.items():
        table.add_row(f"metrics of {name}", url)
    console.print("\nRung is running; Ctrl-C stops it.\n")
    console.print(table)
    console.print("\nTry from another terminal:\n")
    if system.configuration is not None:
        for line in hints(system.configuration, running.database_url, program(sys.argv[0])):
            console.print(f"  {line}")
    console.print()
