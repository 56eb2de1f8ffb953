"""The one error of the embedded stack: a sentence a person can act on."""

from __future__ import annotations

import errno
from pathlib import Path


class StackError(Exception):
    """The embedded stack could not start; the message is one sentence that says why and what to do."""


def from_os_error(error: OSError, doing: str, path: Path) -> StackError:
    """Turn a failed file operation into a sentence: `doing` is a phrase like "write the configuration of Kafka"."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StackError(f"The disk is full: cannot {doing} in {path}.")
    return StackError(f"Cannot {doing} in {path}: {error.strerror or error}.")
