"""Progress of a download on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

_LINE_EVERY_PERCENT = 25


class Progress(Protocol):
    """What a downloader tells about its files; called from several threads."""

    def add(self, count: int) -> None:
        """Count bytes that were just received."""


class _Counter:
    def __init__(self, total: int, show: Callable[[int, int], None]) -> None:
        self._total, self._show = total, show
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._show(self._done, self._total)


@contextlib.contextmanager
def progress(title: str, total: int) -> Iterator[Progress]:
    """Show how much of `total` bytes has come, under a title, until the block ends."""
    if sys.stderr.isatty():
        with _bar(title, total) as show:
            yield _Counter(total, show)
    else:
        print(f"{title}: {total / 1e6:.0f} MB", file=sys.stderr, flush=True)
        yield _Counter(total, _lines(title))


@contextlib.contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done, _total: bar.update(task, completed=done)


def _lines(title: str) -> Callable[[int, int], None]:
    reached = 0

    def show(done: int, total: int) -> None:
        nonlocal reached
        percent = 100 * done // total if total else 100
        if percent >= reached + _LINE_EVERY_PERCENT:
            reached = percent - percent % _LINE_EVERY_PERCENT
            print(f"{title}: {reached} %", file=sys.stderr, flush=True)

    return show
