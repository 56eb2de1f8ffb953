"""Two processes of one machine with the same instance id, found out by a file lock that ends with its holder.

On two machines the ids can meet as well. Then Kafka fences the one that came first, and it ends with a message.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

import structlog

_held: list[int] = []
_log = structlog.get_logger("rung.preflight")


class Taken(Exception):  # noqa: N818 - said of an instance, and turned into a refusal
    """Another process of this machine has it; the text names the process."""


def take(instance: tuple[str, ...]) -> None:
    """Hold the lock of an instance until this process ends, however it ends.

    Raises:
        Taken: another process holds it.
    """
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    folder = Path(base).expanduser() / "rung" / "instances"
    name = hashlib.sha256("\0".join(instance).encode()).hexdigest()[:32]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        # A container with nothing to write to; it has one process.
        _log.info("instance_not_locked", error=type(error).__name__)
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(file, 32, 0).decode(errors="replace").strip()
        os.close(file)
        raise Taken(f"process {holder}" if holder else "another process") from None
    os.ftruncate(file, 0)
    os.pwrite(file, str(os.getpid()).encode(), 0)
    _held.append(file)
