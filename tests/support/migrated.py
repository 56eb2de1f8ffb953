"""Databases with all tables, as copies of one that was migrated once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from relay.outbox.kinds import publish_kinds
from relay.outbox.migrations import migrate
from tests.support import postgres


@contextlib.contextmanager
def template(server: str, kinds: Iterable[str] = ()) -> Iterator[str]:
    """A migrated database that knows these kinds, for `database` to copy; dropped afterwards."""
    url = postgres.create_database(server)
    migrate(url)
    publish_kinds(url, kinds)
    yield url
    postgres.drop_database(server, url)


@contextlib.contextmanager
def database(server: str, template_url: str) -> Iterator[str]:
    """A copy of a template; dropped afterwards."""
    url = postgres.create_database(server, template_url.rsplit("/", 1)[1].split("?")[0])
    yield url
    postgres.drop_database(server, url)
