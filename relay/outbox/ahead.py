"""The next page of a long read, asked for while the one before it is published: the server reads on its own cores."""

from __future__ import annotations

import threading

import psycopg
import structlog

from relay.outbox.domain import Group
from relay.outbox.store import Page, Store

_LOG = structlog.get_logger("rung.outbox")


class ReadAhead:
    """At most one page, read over a connection of its own. A page of a long read depends on nothing but its group, of
    which the snapshot that is read is a part; so it is as good later as it is now."""

    def __init__(self, store: Store, rows: int, payload_bytes: int) -> None:
        """`store` is used by this alone; pages are cut to so many rows and bytes."""
        self._store = store
        self._limits = rows, payload_bytes
        self._group: Group | None = None
        self._page: Page | None = None
        self._thread: threading.Thread | None = None

    def begin(self, group: Group) -> None:
        """Ask for a group's page. Nothing happens while a page that nobody took is still being read."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._group, self._page = group, None
        # It does not keep the process: a reader whose server is silent ends by the server's time-out or its own.
        self._thread = threading.Thread(target=self._read, args=(group,), name="outbox-ahead", daemon=True)
        self._thread.start()

    def take(self, group: Group) -> Page | None:
        """The page that was asked for, if it was for just this group; None if it must be read now."""
        if self._group != group or self._thread is None:
            return None
        self._thread.join()
        self._group = None
        return self._page

    def close(self) -> None:
        """Give up what is being read, and disconnect."""
        self._group = None
        if self._thread is not None:
            self._store.cancel()
            self._thread.join(1.0)
        self._store.close()

    def _read(self, group: Group) -> None:
        try:
            if not self._store.connected:
                self._store.connect()
            self._page = self._store.walk(group, *self._limits)
        except psycopg.Error as error:
            # The one who asked reads it by itself: waits for the server where it is away, and ends over what is wrong.
            _LOG.debug("read_ahead_failed", error=type(error).__name__)
            self._store.close()
