"""Where the system that `rung up` started is: written by it, read by the commands in other terminals."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

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


def _file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "rung" / "up.json"


@contextlib.contextmanager
def announce(running: Running) -> Iterator[None]:
    """Let other terminals find this system while the block runs; of several, the last one started is found."""
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = file.with_suffix(f".{running.pid}")
    draft.touch(mode=0o600)  # it holds the database's address
    draft.write_bytes(msgspec.json.encode(running))
    draft.replace(file)
    try:
        yield
    finally:
        found = find()
        if found is not None and found.pid == running.pid:
            file.unlink(missing_ok=True)


def find() -> Running | None:
    """The system that runs on this machine for this user, or None."""
    try:
        running = msgspec.json.decode(_file().read_bytes(), type=Running)
        os.kill(running.pid, 0)
    except (OSError, msgspec.MsgspecError):
        return None
    return running
