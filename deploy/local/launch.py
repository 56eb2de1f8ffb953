"""Prepare a child process, then become the program.

    launch.py PARENT_PID SIGNAL USER_ID|- GROUP_ID|- PROGRAM ARGUMENT...

Runs by path as a program of its own, with the standard library alone. The kernel sends SIGNAL to the program when the
thread that started it ends, even by SIGKILL. A Python function between fork and exec could do the same, but may
deadlock in a process that has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Data(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def become(libc: ctypes.CDLL, user: int, group: int) -> None:
    """Give up root for `user`, but keep the right to open files that only root may.

    PostgreSQL refuses to run as root. Its wheel and its state usually lie in folders of root that nobody else may
    enter, and opening those folders to every user of the machine would be worse than this one capability.
    """
    libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    bit = 1 << CAP_DAC_OVERRIDE
    data = (_Data * 2)(_Data(bit, bit, bit), _Data(0, 0, 0))
    # Best effort: without the capability (a restricted container) the program still runs if its files are readable.
    if libc.capset(ctypes.byref(_Header(CAPABILITY_VERSION_3, 0)), data) == 0:
        libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0)


def main(arguments: list[str]) -> None:
    """Set the user and the death signal, check that the parent still lives, and replace this process."""
    parent, death_signal = int(arguments[0]), int(arguments[1])
    libc = ctypes.CDLL(None, use_errno=True)
    if arguments[2] != "-":
        become(libc, int(arguments[2]), int(arguments[3]))
    # After the change of user, which clears it.
    libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent process ended before the program started")
    # Python ignores SIGPIPE and SIGXFSZ, and an ignored signal stays ignored in the program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    program = arguments[4:]
    try:
        os.execvp(program[0], program)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        sys.exit(f"cannot run {program[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
