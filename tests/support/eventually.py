"""Waiting for a condition without guessing how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    check: Callable[[], T | None], timeout: float = 15.0, interval: float = 0.02, describe: str | Callable[[], str] = ""
) -> T:
    """Call `check` until it returns something true, and return that.

    An exception of `check` counts as "not yet", except those that mean to end the test run.

    Args:
        check: the condition; called at least once.
        timeout: how long to go on, in seconds.
        interval: how long to wait between two calls, in seconds.
        describe: what is waited for, for the error; a function is called only then.

    Raises:
        AssertionError: it did not hold in time; tells the last value or exception.
    """
    deadline = time.monotonic() + timeout
    while True:
        error: Exception | None = None
        try:
            value = check()
            if value:
                return value
            last = f"last value: {value!r}"
        except Exception as raised:
            error = raised
            last = f"last exception: {raised!r}"
        if time.monotonic() >= deadline:
            what = describe() if callable(describe) else describe
            raise AssertionError(f"{what or 'the condition'} did not hold within {timeout} s; {last}") from error
        time.sleep(interval)
