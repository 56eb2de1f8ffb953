"""What the embedded servers share: one process on one port, whose state stays in a folder."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from deploy.local import ports, process, state
from deploy.local.errors import AbortedError, PortRaceError, StackError, from_os_error

_STOP_SECONDS = 15.0
# Ports are chosen free, and lost between choice and use only to another stack that starts at the same moment.
_TRIES = 3
_PORT_TAKEN = "its port was taken by another process"


class Server(ABC):
    """A server that runs as a child process and ends with this process, however that ends.

    Starting again on the same folder continues with its data. A server is driven by one thread; only `abort` may be
    called from another one.
    """

    NAME: ClassVar[str]
    # How the server is asked to stop in order.
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGTERM
    # What it gets from the kernel when this process was killed: nobody is left to insist.
    DEATH_SIGNAL: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, state_dir: Path, port: int | None = None) -> None:
        """Describe a server on 127.0.0.1; nothing runs before `start`.

        Args:
            state_dir: the folder to keep everything in; created by `start`.
            port: where clients connect; a free one is chosen if None, and kept for later starts of this object.
        """
        self._folder = state_dir.expanduser().absolute()
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = state.StateLock(self._folder / f"{self.NAME.lower()}.lock")
        self._aborted = threading.Event()

    @property
    def port(self) -> int:
        """Where clients connect on 127.0.0.1; known after the first start, or if it was given."""
        if self._port is None:
            raise StackError(f"{self.NAME} has no port yet: it was not started.")
        return self._port

    @property
    def pid(self) -> int | None:
        """The process id of the server, or None if it does not run."""
        child = self._process
        return None if child is None or process.exit_code(child) is not None else child.pid

    def failure(self) -> str | None:
        """A sentence about a server that was started and has ended by itself; None while all is as it should be."""
        if self._process is None or process.exit_code(self._process) is None:
            return None
        return f"{self.NAME} ended by itself: {self._reason()}; see {self._where}."

    def check(self) -> None:
        """Find what would certainly make a start fail, without starting anything.

        Raises:
            StackError: a wheel is missing, the folder cannot be used, or the port is taken.
        """
        self._find_programs()
        state.prepare(self._folder)
        if self._port is not None and self.pid is None:
            ports.require_free(self._port, self.NAME)

    def start(self) -> None:
        """Start the server and return when it serves clients; no effect if it runs.

        Raises:
            StackError: it could not start; nothing is left running.
        """
        if self.pid is not None:
            return
        self._aborted.clear()
        self._find_programs()
        state.prepare(self._folder)
        chosen = self._port is None
        try:
            self._lock.acquire(self.NAME)
            for left in reversed(range(_TRIES)):
                try:
                    self._start(self._port or ports.free_port())
                    return
                except PortRaceError:
                    if left == 0:
                        raise
                    self._end_child()
                    self._port = None if chosen else self._port
        except OSError as error:
            self.kill()
            raise from_os_error(error, f"start {self.NAME}", self._folder) from error
        except BaseException:
            self.kill()
            raise

    def _start(self, port: int) -> None:
        ports.require_free(port, self.NAME)
        self._port = port
        command = self._prepare()
        self._continue()
        self._process = self._spawn(command, self.DEATH_SIGNAL)
        self._wait_until_ready()

    def stop(self, timeout: float = _STOP_SECONDS) -> bool:
        """Stop in order; after `timeout` seconds kill it. Returns whether it had to be killed."""
        killed = False
        if self._process is not None:
            killed = process.end(self._process, by=self.STOP_SIGNAL, timeout=timeout)
        self.kill()
        return killed

    def kill(self) -> None:
        """End the server at once, as a crash would; its data stays."""
        self._end_child()
        self._lock.release()

    def _end_child(self) -> None:
        if self._process is not None:
            process.end(self._process, by=signal.SIGKILL)
        self._process = None

    def restart(self) -> None:
        """Stop if it runs, and start on the same port and data."""
        self.stop()
        self.start()

    def abort(self) -> None:
        """Make a `start` that is running in another thread give up soon, with `AbortedError`."""
        self._aborted.set()

    def _continue(self) -> None:
        if self._aborted.is_set():
            raise AbortedError(f"The start of {self.NAME} was given up.")

    def _run_tool(self, command: Sequence[str], doing: str, timeout: float) -> None:
        """Run a program to its end; `doing` is a phrase like "create its cluster" for the error."""
        tool = self._spawn(command, signal.SIGKILL)
        try:
            deadline = time.monotonic() + timeout
            while (code := process.wait(tool, time.monotonic() + 0.1)) is None:
                self._continue()
                if time.monotonic() > deadline:
                    raise StackError(f"{self.NAME} did not {doing} within {timeout:.0f} s; see {self._where}.")
        finally:
            process.end(tool, by=signal.SIGKILL)
        if code != 0:
            raise StackError(f"{self.NAME} could not {doing}: {self._reason()}; see {self._where}.")

    def _wait_until(self, deadline: float) -> bool:
        """Say whether to look again; raises if the server has ended or the time is over."""
        self._continue()
        child = self._process
        if child is None or process.exit_code(child) is not None:
            reason = self._reason()
            kind = PortRaceError if reason == _PORT_TAKEN else StackError
            raise kind(f"{self.NAME} ended while it started: {reason}; see {self._where}.")
        if time.monotonic() > deadline:
            raise StackError(f"{self.NAME} did not serve clients in time; see {self._where}.")
        return True

    def _reason(self) -> str:
        text = self._log_text()
        if "No space left on device" in text:
            return "the disk is full"
        if "Address already in use" in text:
            return _PORT_TAKEN
        code = None if self._process is None else process.exit_code(self._process)
        if code is not None and code < 0:
            # It had no time to say why; whatever its log ends with is about something else.
            return f"it was ended by {process.describe(code)}"
        return (self._cause(text) or "it gave no reason").rstrip(".")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _where(self) -> str:
        """Where to read more, for an error."""
        return str(self.log)

    @property
    @abstractmethod
    def log(self) -> Path:
        """The file to read when something is wrong."""

    @abstractmethod
    def _find_programs(self) -> None:
        """Raise `StackError` if what the server needs is not installed."""

    @abstractmethod
    def _prepare(self) -> list[str]:
        """Write the configuration, create the data if there is none, and return the command."""

    @abstractmethod
    def _spawn(self, command: Sequence[str], death_signal: signal.Signals) -> subprocess.Popen[bytes]:
        """Start one of the server's programs; it holds the lock of the folder."""

    @abstractmethod
    def _wait_until_ready(self) -> None:
        """Return when clients are served, asking `_wait_until` before each look."""

    @abstractmethod
    def _log_text(self) -> str:
        """The end of what the server has written since its start."""

    @abstractmethod
    def _cause(self, text: str) -> str | None:
        """Find the reason of a failure in the log's text."""
