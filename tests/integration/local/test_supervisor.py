"""Supervised children: real processes, started, watched and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deploy.local.supervisor import Child, Exit, Restart, Supervisor
from tests.support.eventually import eventually

# Prints when it is ready, then waits; what it does on SIGTERM is the argument.
WAITS = """
import signal, sys, time
if sys.argv[1] == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif sys.argv[1] == "finish":
    signal.signal(signal.SIGTERM, lambda *_: (print("finished", flush=True), sys.exit(0)))
print("ready", flush=True)
while True:
    time.sleep(60)
"""


def waiting(name: str, folder: Path, on_term: str = "finish", **options: object) -> Child:
    """A child that runs until it is stopped."""
    return Child(name, [sys.executable, "-c", WAITS, on_term], folder / f"{name}.log", **options)  # type: ignore[arg-type]


def ready(child: Child) -> None:
    """Wait until the child has said that it is ready."""
    eventually(lambda: "ready" in child.log.read_text(), describe=child.name)


def wait_for_exits(supervisor: Supervisor, count: int) -> list[Exit]:
    """Poll until as many exits were reported."""
    exits: list[Exit] = []

    def enough() -> bool:
        exits.extend(supervisor.poll())
        return len(exits) >= count

    eventually(enough)
    return exits


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    """A supervisor without children, which leaves none."""
    with Supervisor() as supervisor:
        yield supervisor
        supervisor.stop_all(timeout=0.1)


def test_stops_all_within_one_limit_and_tells_who_was_killed(supervisor: Supervisor, tmp_path: Path) -> None:
    """Two that finish and two that ignore SIGTERM: the limit counts once, and only the stubborn are named."""
    children = [
        waiting(name, tmp_path, on_term) for name, on_term in zip("abcd", ["finish", "ignore"] * 2, strict=True)
    ]
    for child in children:
        supervisor.add(child)
    supervisor.start_all()
    for child in children:
        ready(child)
    pids = [supervisor.pid(name) for name in "abcd"]
    assert supervisor.stop_all(timeout=0.5) == ["b", "d"]
    assert not any(psutil.pid_exists(pid or 0) for pid in pids)
    assert [supervisor.pid(name) for name in "abcd"] == [None] * 4
    assert "finished" in children[0].log.read_text()
    assert supervisor.poll() == []


def test_stop_ends_one_and_start_begins_it_again(supervisor: Supervisor, tmp_path: Path) -> None:
    """Children are stopped one by one; a start of one that runs changes nothing; its log goes on."""
    child = waiting("one", tmp_path)
    supervisor.add(child)
    supervisor.add(waiting("other", tmp_path))
    supervisor.start_all()
    ready(child)
    assert supervisor.start("one") == supervisor.pid("one")
    assert supervisor.stop("one", timeout=5) is False
    assert supervisor.pid("one") is None
    assert supervisor.pid("other") is not None
    supervisor.start("one")
    eventually(lambda: child.log.read_text().count("ready") == 2)


def test_exits_are_reported_once_with_their_reason(supervisor: Supervisor, tmp_path: Path) -> None:
    """An exit code and a signal are told apart, stderr is in the log, and the environment arrives."""
    code = "import os, sys; print(os.environ['GREETING'], file=sys.stderr); sys.exit(3)"
    ends = Child("ends", [sys.executable, "-c", code], tmp_path / "ends.log", env={"GREETING": "hello"})
    killed = waiting("killed", tmp_path)
    supervisor.add(ends)
    supervisor.add(killed)
    supervisor.start_all()
    ready(killed)
    supervisor.kill("killed")
    exits = wait_for_exits(supervisor, 2)
    assert {(e.name, e.reason, e.restart_in) for e in exits} == {
        ("ends", "exit code 3", None),
        ("killed", "SIGKILL", None),
    }
    assert ends.log.read_text() == "hello\n"
    assert supervisor.poll() == []


def test_restarts_wait_longer_each_time_until_a_child_settles(tmp_path: Path) -> None:
    """0.5 s, 1 s, 2 s, the cap; and from the beginning after a run that lasted."""
    now = 0.0
    restart = Restart(first=0.5, cap=3.0, settled=30.0)
    child = Child("ends", [sys.executable, "-c", ""], tmp_path / "ends.log", restart=restart)
    with Supervisor([child], clock=lambda: now) as supervisor:
        supervisor.start("ends")
        waits = []
        for _ in range(5):
            wait = wait_for_exits(supervisor, 1)[0].restart_in
            assert wait is not None
            waits.append(wait)
            now += wait - 0.001
            supervisor.poll()
            assert supervisor._states["ends"].running is None, "it was started before its time"
            now += 0.001
            supervisor.poll()
        assert waits == [0.5, 1.0, 2.0, 3.0, 3.0]
        now += 30.0
        assert wait_for_exits(supervisor, 1)[0].restart_in == 0.5


def test_a_stopped_child_stays_stopped(tmp_path: Path) -> None:
    """A stop while a restart is due cancels it."""
    now = 0.0
    child = Child("ends", [sys.executable, "-c", ""], tmp_path / "ends.log", restart=Restart())
    with Supervisor([child], clock=lambda: now) as supervisor:
        supervisor.start("ends")
        eventually(supervisor.poll)
        supervisor.stop("ends")
        now += 3600
        assert supervisor.poll() == []
        assert supervisor.pid("ends") is None


def test_what_a_child_left_behind_goes_with_it(supervisor: Supervisor, tmp_path: Path) -> None:
    """A grandchild in the group does not outlive its parent's end."""
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    child = Child("parent", [sys.executable, "-c", code], tmp_path / "parent.log")
    supervisor.add(child)
    supervisor.start("parent")
    eventually(supervisor.poll)
    grandchild = int(child.log.read_text())
    eventually(lambda: not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == "zombie")


def test_children_have_sessions_of_their_own(supervisor: Supervisor, tmp_path: Path) -> None:
    """Ctrl-C in the terminal reaches the parent alone, which then stops them in order."""
    supervisor.add(waiting("one", tmp_path))
    pid = supervisor.start("one")
    assert os.getsid(pid) == pid


def test_names_are_checked(supervisor: Supervisor, tmp_path: Path) -> None:
    """One name is one child, and an unknown name is an error."""
    supervisor.add(waiting("one", tmp_path))
    with pytest.raises(ValueError, match="named one already"):
        supervisor.add(waiting("one", tmp_path))
    with pytest.raises(KeyError):
        supervisor.start("two")


def test_children_end_with_a_killed_parent(tmp_path: Path) -> None:
    """`kill -9` of the parent ends even a child that ignores SIGTERM."""
    log = tmp_path / "child.log"
    script = (
        "import pathlib, sys, time\n"
        "from deploy.local.supervisor import Child, Supervisor\n"
        f"s = Supervisor([Child('one', [sys.executable, '-c', {WAITS!r}, 'ignore'], pathlib.Path({str(log)!r}))])\n"
        "print(s.start('one'), flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        eventually(lambda: "ready" in log.read_text())
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie")
