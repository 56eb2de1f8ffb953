"""Named child processes: started, watched, restarted if wished, and all stopped within one limit of time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local import process

STOP_SECONDS = 15.0


@dataclass(frozen=True)
class Restart:
    """When to start a child again that has ended by itself: after a wait that doubles while it keeps ending.

    All times are in seconds. A child that ran for `settled` seconds begins again at `first`.
    """

    first: float = 0.5
    cap: float = 10.0
    settled: float = 30.0


@dataclass(frozen=True)
class Child:
    """What to run.

    `env` is added to the environment of this process; `restart` is None for a child that is left ended; `output` takes
    stdout in place of `log`.
    """

    name: str
    command: Sequence[str]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    restart: Restart | None = None
    output: Path | None = None


@dataclass(frozen=True)
class Exit:
    """A child that ended without being asked to; `restart_in` is in seconds, None if it stays ended."""

    name: str
    code: int
    restart_in: float | None = None

    @property
    def reason(self) -> str:
        """The end in words: `exit code 3` or `SIGKILL`."""
        return process.describe(self.code)


@dataclass
class _State:
    child: Child
    running: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    wait: float | None = None
    due_at: float | None = None


class Supervisor:
    """Runs children, each as a process group of its own that ends with this process, however that ends.

    It has no thread: call `poll` now and then. All methods may be called from any thread.
    """

    def __init__(self, children: Sequence[Child] = (), clock: Callable[[], float] = time.monotonic) -> None:
        """Know the children without starting any; `clock` gives seconds."""
        self._states: dict[str, _State] = {}
        self._clock = clock
        self._lock = threading.RLock()
        for child in children:
            self.add(child)

    def add(self, child: Child) -> None:
        """Make a child known.

        Raises:
            ValueError: there is one of this name.
        """
        with self._lock:
            if child.name in self._states:
                raise ValueError(f"there is a child named {child.name} already")
            self._states[child.name] = _State(child)

    def change(self, name: str, env: Mapping[str, str]) -> None:
        """Give a child other variables from its next start on, in place of those in `Child.env`."""
        with self._lock:
            state = self._states[name]
            state.child = replace(state.child, env=dict(env))

    @property
    def names(self) -> list[str]:
        """All known names, in the order in which they were added."""
        return list(self._states)

    def pid(self, name: str) -> int | None:
        """The process id of a child, or None if it does not run. KeyError for an unknown name, as everywhere here."""
        running = self._states[name].running
        return None if running is None or process.exit_code(running) is not None else running.pid

    def start(self, name: str) -> int:
        """Start a child unless it runs, and return its process id.

        Raises:
            OSError: its log cannot be written or the system cannot start a process.
        """
        with self._lock:
            state = self._states[name]
            pid = self.pid(name)
            return self._start(state) if pid is None else pid

    def start_all(self) -> None:
        """Start every child that does not run, in the order in which they were added."""
        for name in self.names:
            self.start(name)

    def _start(self, state: _State) -> int:
        child = state.child
        state.due_at = None
        state.started_at = self._clock()
        state.running = process.spawn(
            child.command, log=child.log, output=child.output, env={**os.environ, **child.env}, cwd=child.cwd
        )
        return state.running.pid

    def stop(self, name: str, timeout: float = STOP_SECONDS) -> bool:
        """Stop a child by SIGTERM and after `timeout` seconds by SIGKILL. Returns whether it had to be killed."""
        return bool(self._stop([name], timeout))

    def stop_all(self, timeout: float = STOP_SECONDS) -> list[str]:
        """Stop all children at the same time, within one limit; returns the names of those that had to be killed."""
        return self._stop(self.names, timeout)

    def _stop(self, names: Sequence[str], timeout: float) -> list[str]:
        deadline = time.monotonic() + timeout
        with self._lock:
            stopping = []
            for name in names:
                state = self._states[name]
                if state.running is not None:
                    stopping.append((name, state.running))
                    if process.exit_code(state.running) is None:
                        state.running.send_signal(signal.SIGTERM)
                # From here on `poll` neither reports nor restarts it.
                state.running = state.wait = state.due_at = None
        return [name for name, running in stopping if process.finish(running, deadline)]

    def kill(self, name: str) -> None:
        """Kill a child and its group at once, as a crash would; `poll` reports that, and a restart applies."""
        running = self._states[name].running
        if running is not None:
            process.signal_group(running, signal.SIGKILL)

    def poll(self) -> list[Exit]:
        """Report the children that ended since the last call, and start those again whose wait is over."""
        exits = []
        with self._lock:
            for state in self._states.values():
                if state.running is not None and (code := process.exit_code(state.running)) is not None:
                    state.running = None
                    self._plan_restart(state)
                    exits.append(Exit(state.child.name, code, state.wait))
                elif state.due_at is not None and self._clock() >= state.due_at:
                    try:
                        self._start(state)
                    except OSError:
                        # The log cannot be written, most likely; like a child that ends at once.
                        self._plan_restart(state)
        return exits

    def _plan_restart(self, state: _State) -> None:
        restart = state.child.restart
        if restart is None:
            return
        now = self._clock()
        settled = now - state.started_at >= restart.settled
        state.wait = restart.first if state.wait is None or settled else min(2 * state.wait, restart.cap)
        state.due_at = now + state.wait

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_all()
