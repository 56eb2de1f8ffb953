"""The errors of the embedded stack: a sentence each, that a person can act on."""

from __future__ import annotations

import errno
from pathlib import Path

from deploy.errors import CommandError


class StackError(CommandError):
    """The embedded stack could not start; the message is one sentence that says why and what to do."""


class PortRaceError(StackError):
    """A port that was free a moment ago is taken now; the start may try another one."""


class AbortedError(StackError):
    """The start was given up because another part of the stack failed."""


def from_os_error(error: OSError, doing: str, path: Path) -> StackError:
    """Turn a failed file operation into a sentence: `doing` is a phrase like "keep the state"."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StackError(f"The disk is full: cannot {doing} in {path}.")
    return StackError(f"Cannot {doing} in {path}: {error.strerror or error}.")
