"""Child processes that end with this one: each in a session of its own, started from a thread that never ends."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

_LAUNCHER = Path(__file__).with_name("launch.py")
_POLL_SECONDS = 0.01

# The kernel's death signal is bound to the *thread* that forked, so children are started from one thread that lives as
# long as the process. A daemon thread, because Python would wait for any other before the exit handlers.
_Start = Callable[[], "subprocess.Popen[bytes]"]
_jobs: queue.SimpleQueue[tuple[_Start, Future[subprocess.Popen[bytes]]]] = queue.SimpleQueue()
_spawner: tuple[int, threading.Thread] | None = None
_spawner_lock = threading.Lock()


@dataclass(frozen=True)
class RunAs:
    """The user that a child runs as, when this process is root and the program refuses to be."""

    user_id: int
    group_id: int


def _serve() -> None:
    while True:
        start, future = _jobs.get()
        try:
            future.set_result(start())
        except BaseException as error:
            future.set_exception(error)


def _ensure_spawner() -> None:
    global _spawner
    with _spawner_lock:
        # After a fork the thread is not there any more.
        if _spawner is None or _spawner[0] != os.getpid():
            thread = threading.Thread(target=_serve, name="spawner", daemon=True)
            thread.start()
            _spawner = (os.getpid(), thread)


def spawn(
    command: Sequence[str],
    *,
    log: Path,
    output: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
    run_as: RunAs | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program in its own session, with output appended to `log`, and bound to the life of this process.

    Args:
        command: the program and its arguments.
        log: takes stdout and stderr; created if it is missing.
        output: takes stdout in place of `log`.
        env: the whole environment; that of this process if None.
        cwd: the working directory; that of this process if None.
        death_signal: what the kernel sends to the program when this process ends in whatever way.
        run_as: the user to run as; this process must be root then.
        pass_fds: descriptors that stay open in the program.

    Raises:
        OSError: a file cannot be opened or the system cannot start a process.
    """
    who = ("-", "-") if run_as is None else (str(run_as.user_id), str(run_as.group_id))
    prefix = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), str(int(death_signal)), *who]

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as errors, (output or log).open("ab") as out:
            return subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )

    _ensure_spawner()
    future: Future[subprocess.Popen[bytes]] = Future()
    _jobs.put((start, future))
    return future.result()


def describe(code: int) -> str:
    """An exit code in words: `exit code 3`, or the name of the signal that ended the process."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the process and to those it started in its group; no error if all have ended."""
    # Once the leader has been waited for, its number may belong to somebody else.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code, negative for a signal, or None while it runs. What an ended process left in its group is killed.

    Use this and not `poll`: that would give the group's number back before the group is gone.
    """
    if process.returncode is None and _has_ended(process):
        signal_group(process, signal.SIGKILL)
        process.wait()
    return process.returncode


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Look without waiting for it, so that its number stays its own."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def wait(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Wait for the end until the monotonic `deadline`; returns the exit code, or None if it still runs."""
    while (code := exit_code(process)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return code


def finish(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Wait until the monotonic `deadline`, then kill the group. Returns whether that was needed."""
    if wait(process, deadline) is not None:
        return False
    signal_group(process, signal.SIGKILL)
    process.wait()
    return True


def end(process: subprocess.Popen[bytes], *, by: signal.Signals = signal.SIGTERM, timeout: float = 10.0) -> bool:
    """Ask the process to end and wait; after `timeout` seconds kill its group. Returns whether that was needed."""
    if exit_code(process) is None:
        process.send_signal(by)
    return finish(process, time.monotonic() + timeout)


def tail(path: Path, limit: int = 16_384, since: int = 0) -> str:
    """The last `limit` bytes of a log as text, and none before the offset `since`; empty if there is no log."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            # A log that is shorter than before was rolled over.
            file.seek(max(since if since <= size else 0, size - limit))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
