"""The next page of a long read is read while the one before is published, and is the page that a read would give."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from relay.outbox.ahead import ReadAhead
from relay.outbox.domain import Group, Position
from relay.outbox.store import Store
from tests.integration.outbox.conftest import Outbox

LIMITS = (50, 1 << 24)
FILL = """
SELECT count(rung.notify('recipient-' || i % 40, 'order_shipped', '{}', i::text)) FROM generate_series(1, 300) i
"""
END = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = 'rung outbox' AND datname = current_database()
"""


@pytest.fixture
def group(outbox: Outbox) -> Group:
    """A long read of 300 rows, at its beginning."""
    seen = outbox.sql("SELECT pg_current_snapshot()::text")[0][0]
    outbox.sql(FILL)
    until = outbox.sql("SELECT pg_current_snapshot()::text")[0][0]
    return Group(Position(seen, until, 0), tuple(range(64)))


@pytest.fixture
def ahead(outbox: Outbox) -> Iterator[ReadAhead]:
    """A reader of pages of 50 rows."""
    reader = ReadAhead(Store(outbox.url, uuid4()), *LIMITS)
    yield reader
    reader.close()


def test_it_gives_the_page_that_was_asked_for_and_no_other(outbox: Outbox, group: Group, ahead: ReadAhead) -> None:
    """Where the group has changed since (a bucket was given back, a producer broke), the page is not taken."""
    store = Store(outbox.url, uuid4())
    store.connect()
    try:
        assert ahead.take(group) is None
        ahead.begin(group)
        page = ahead.take(group)
        assert page == store.walk(group, *LIMITS)
        assert ahead.take(group) is None
        assert page is not None
        ahead.begin(group.after(page.snapshot, page.last_seq))
        assert ahead.take(Group(group.position, group.buckets[1:])) is None
        assert ahead.take(group) is None
    finally:
        store.close()


def test_a_lost_connection_costs_one_page_and_no_more(outbox: Outbox, group: Group, ahead: ReadAhead) -> None:
    """What could not be read ahead is read when it is needed, and the next one is read ahead again."""
    ahead.begin(group)
    page = ahead.take(group)
    assert page is not None
    assert outbox.sql(END) == [(1,)]
    ahead.begin(group)
    assert ahead.take(group) is None
    ahead.begin(group)
    assert ahead.take(group) == page
