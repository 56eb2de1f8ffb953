"""Where the systems are that `rung up` started: written by it, read by the commands in other terminals."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """What `rung up --json` prints, and who it is."""

    kafka: str
    database_url: str
    api: str
    metrics: dict[str, str]
    """Service to the address of its metrics."""
    config_dir: str
    state_dir: str
    topic_prefix: str = ""
    pid: int


def _folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "rung" / "up"


@contextlib.contextmanager
def announce(running: Running) -> Iterator[None]:
    """Let other terminals find this system while the block runs, beside others that run.

    The lock on the file says that its system lives: it ends with the process, however that ends, while the number of
    a dead process may belong to another one.
    """
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / f"{running.pid}.json"
    draft = file.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)  # it holds the database's address
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, msgspec.json.encode(running))
        draft.replace(file)
        yield
    finally:
        file.unlink(missing_ok=True)
        os.close(descriptor)


def living() -> list[Running]:
    """The systems that run on this machine for this user, the newest first."""
    found: list[tuple[int, Running]] = []
    for file in _folder().glob("*.json"):
        with contextlib.suppress(OSError, msgspec.MsgspecError), file.open("rb") as source:
            if _is_locked(source.fileno()):
                running = msgspec.json.decode(source.read(), type=Running)
                found.append((os.fstat(source.fileno()).st_mtime_ns, running))
            else:
                file.unlink(missing_ok=True)
    return [running for _, running in sorted(found, key=lambda pair: pair[0], reverse=True)]


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def find() -> Running | None:
    """The newest system that runs on this machine for this user, or None; of several, it says on stderr which."""
    found = living()
    if len(found) > 1:
        print(f"rung: {len(found)} systems run; this is about the newest, {_place(found[0])}", file=sys.stderr)
    return found[0] if found else None


def _place(running: Running) -> str:
    """Where a system is, without the password."""
    address = urlsplit(running.database_url)
    port = f":{address.port}" if address.port else ""
    return f"with PostgreSQL at {address.hostname or 'a socket'}{port} (process {running.pid})"
