"""`rung demo`: the whole system, a business application, real providers, people who act; then a check from outside."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import UUID

import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from deploy.demo.judge import Committed, Kind, Verdict, judge
from deploy.demo.plan import make_plan, stories
from deploy.demo.providers import Providers
from deploy.demo.summary import print_summary, print_verdict
from deploy.local.supervisor import Child, Supervisor
from deploy.running import Running
from deploy.settings import load
from deploy.signals import stop_on_signals
from deploy.system import LocalSystem, StartInterrupted
from relay.journal.query import explain, find
from relay.journal.render import render
from relay.journal.totals import totals

SEED = 7
POLL_SECONDS = 0.25
DRAIN_SECONDS = 75.0
"""How long after the application's last act the last ladder may take to end; more is a fault."""
INTERRUPTED = 130
FAILED = 1


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The user wants the demo to end now."""


def run_demo(keep: Path | None) -> int:
    """Play, show, check, stop. 0 only if the check found no fault."""
    # A log or a pipe has no width of its own; a table needs more than the 80 columns that would be assumed.
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    stop = threading.Event()
    stop_on_signals(stop)
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rung-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        demo = Demo(folder.absolute(), console, stop)
        stack.callback(demo.stop)
        try:
            verdict = demo.play()
        except Interrupted:
            console.print("interrupted; stopping everything …")
            return INTERRUPTED
        if verdict.faults and keep is None:
            console.print("run `rung demo --keep FOLDER` to keep the state and the logs of such a run")
    return FAILED if verdict.faults else 0


class Demo:
    """One run in one folder."""

    def __init__(self, folder: Path, console: Console, stop: threading.Event) -> None:
        self._folder = folder
        self._console = console
        self._stop = stop
        self._plan = make_plan(SEED)
        self._providers = Providers(folder)
        self._supervisor = Supervisor()
        self._diary = folder / "app.jsonl"
        settings = load().model_copy(update={"config_dir": folder / "config"})
        self._system = LocalSystem(settings, folder / "system", progress=self._say, fsync=False, stop=stop)

    def play(self) -> Verdict:
        """The whole run; the verdict is of the outside check."""
        self._write_configuration()
        self._providers.start(self._plan, self._supervisor)
        try:
            running = self._system.start()
        except StartInterrupted:
            raise Interrupted from None
        self._check_stop()
        number = len(self._plan.requests)
        self._say(f"a business application asks for {number} notifications to {len(self._plan.people)} people")
        self._start_application(running)
        self._watch(running)
        self._console.print()
        self._show_a_story(running)
        counts = totals(running.database_url)
        print_summary(self._console, counts)
        committed, rolled_back, stopped = self._what_was_committed(running)
        verdict = judge(self._plan, committed, rolled_back, stopped, self._providers.calls())
        for one in self._unknown(running, committed):
            verdict.fault(Kind.MISSING, f"{one.notification_id}: has no end in the journal")
        print_verdict(self._console, verdict, counts)
        return verdict

    def stop(self) -> None:
        """Stop everything that was started."""
        self._supervisor.stop_all()
        self._system.stop()

    def _say(self, text: str) -> None:
        self._console.print(f"{text} …")

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Interrupted

    def _write_configuration(self) -> None:
        target = self._folder / "config"
        shutil.copytree(Path(__file__).parent / "config", target, dirs_exist_ok=True)
        (target / "channels.toml").write_text(self._providers.channels(), encoding="utf-8")

    def _start_application(self, running: Running) -> None:
        command = [sys.executable, "-m", "deploy.demo.app", "--database", running.database_url]
        command += ["--seed", str(SEED), "--diary", str(self._diary)]
        self._supervisor.add(Child(name="application", command=command, log=self._folder / "app.log"))
        self._supervisor.start("application")

    def _watch(self, running: Running) -> None:
        """Show progress until the application is done and every ladder has ended."""
        wanted = sum(not r.rolled_back for r in self._plan.requests)
        drained_by: float | None = None
        with _progress(self._console) as show, psycopg.connect(running.database_url, autocommit=True) as connection:
            while not self._stop.wait(POLL_SECONDS):
                accepted, ended = _standing(connection)
                show(accepted, ended, wanted, len(self._providers.calls()))
                for exit_ in self._supervisor.poll():
                    if exit_.name != "application" or exit_.code != 0:
                        raise RuntimeError(f"{exit_.name} ended with {exit_.reason}: see its log in {self._folder}")
                    drained_by = time.monotonic() + DRAIN_SECONDS
                for exit_ in self._system.poll():
                    self._console.print(f"{exit_.name} ended with {exit_.reason} and is started again")
                if drained_by is not None and (ended >= wanted or time.monotonic() > drained_by):
                    return
        raise Interrupted

    def _show_a_story(self, running: Running) -> None:
        """One notification with something to tell: refused on its first channel, promoted and then settled, if the
        play has one; else one with retries."""
        for request in stories(self._plan):
            identity = find(running.database_url, request.recipient, request.dedup_key)
            story = explain(running.database_url, identity) if identity else None
            if story is not None:
                render(story, self._console)
                self._console.print()
                return

    def _what_was_committed(self, running: Running) -> tuple[list[Committed], list[str], dict[str, int]]:
        """From the application's own tables and diary: its notifications, those rolled back, and who left when."""
        diary = [json.loads(line) for line in self._diary.read_text(encoding="utf-8").splitlines()]
        at = {(line["what"], line["number"]): line["at"] for line in diary if line["number"] is not None}
        stopped = {line["recipient"]: line["at"] for line in diary if line["what"] in {"withdrawn", "erased"}}
        rolled_back = [line["notification_id"] for line in diary if line["what"] == "rolled_back"]
        by_number = {request.number: request for request in self._plan.requests}
        with psycopg.connect(running.database_url) as connection:
            rows = connection.execute("SELECT number, notification_id FROM shop.matter").fetchall()
        committed = [
            Committed(by_number[number], str(identity), at["committed", number], at.get(("settled", number)))
            for number, identity in rows
        ]
        return committed, rolled_back, stopped

    @staticmethod
    def _unknown(running: Running, committed: list[Committed]) -> list[Committed]:
        """Committed notifications that the journal does not show as ended."""
        with psycopg.connect(running.database_url) as connection:
            rows = connection.execute("SELECT notification_id FROM rung.notification WHERE ended_at IS NOT NULL")
            ended = {str(identity) for (identity,) in rows}
        return [one for one in committed if str(UUID(one.notification_id)) not in ended]


def _standing(connection: psycopg.Connection[tuple[int, int]]) -> tuple[int, int]:
    row = connection.execute("SELECT count(*), count(ended_at) FROM rung.notification").fetchone()
    return row or (0, 0)


@contextmanager
def _progress(console: Console) -> Iterator[_Show]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield _Show(progress, console)


class _Show:
    """Bars on a terminal, a line every few seconds elsewhere."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress = progress
        self._console = console
        self._accepted = progress.add_task("accepted")
        self._ended = progress.add_task("ended")
        self._said_at = time.monotonic()

    def __call__(self, accepted: int, ended: int, wanted: int, calls: int) -> None:
        self._progress.update(self._accepted, total=wanted, completed=accepted)
        self._progress.update(self._ended, total=wanted, completed=ended, description=f"ended ({calls} calls)")
        if not self._console.is_terminal and time.monotonic() - self._said_at > 5:
            self._said_at = time.monotonic()
            self._console.print(f"accepted {accepted} of {wanted}, ended {ended}, provider calls {calls}")
