"""The state folder of one server: one owner at a time, and contents that appear whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from deploy.local.errors import StackError, from_os_error

# Room for the first start and a short run; a server that meets a full disk later says so in its own log.
_LEAST_FREE_BYTES = 300 * 1024 * 1024
# The servers of a killed owner need a moment to end; anything that holds the folder longer is a running stack.
_WAIT_SECONDS = 6.0


class StateLock:
    """An exclusive lock on a state folder that the server inherits.

    The lock belongs to the open file, which every process of the server keeps open. So it is free exactly when the
    last of them has ended, whoever started them and however that ended.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The open file to hand to the server."""
        if self._descriptor is None:
            raise RuntimeError("the lock is not held")
        return self._descriptor

    def acquire(self, owner: str) -> None:
        """Take the lock, waiting a few seconds for an earlier server to end.

        Raises:
            StackError: another server holds the folder; `owner` names the server in the message.
        """
        if self._descriptor is not None:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    raise StackError(
                        f"Another {owner} is running on {self._path.parent}; stop it or choose another state folder."
                    ) from None
                time.sleep(0.02)
            else:
                self._descriptor = descriptor
                return

    def release(self) -> None:
        """Close our hold; the lock is free when the server's processes have ended too."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def prepare(folder: Path) -> Path:
    """Create a state folder and return its absolute path.

    Raises:
        StackError: it cannot be written, or the disk has no room for a server.
    """
    folder = folder.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise from_os_error(error, "keep the state", folder) from error
    if free < _LEAST_FREE_BYTES:
        needed = _LEAST_FREE_BYTES // 2**20
        raise StackError(f"The disk is full: {folder} has {free // 2**20} MB free, and {needed} MB are needed.")
    return folder


def create_whole(folder: Path, fill: Callable[[Path], None]) -> None:
    """Create `folder` unless it exists: `fill` works on another name, and the finished folder is renamed.

    A start that fails or is killed in the middle leaves only a folder of the other name, which the next one replaces.
    """
    if folder.exists():
        return
    filling = unfinished(folder)
    shutil.rmtree(filling, ignore_errors=True)
    try:
        filling.mkdir()
        fill(filling)
        filling.rename(folder)
    except BaseException:
        shutil.rmtree(filling, ignore_errors=True)
        raise


def unfinished(folder: Path) -> Path:
    """The name of a folder while `create_whole` fills it."""
    return folder.with_name(f"{folder.name}.unfinished")
