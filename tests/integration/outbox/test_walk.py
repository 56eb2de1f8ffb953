"""A long read in pages: whatever the pages hold, every row comes once and in its order."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from relay.outbox.domain import Group, Position
from relay.outbox.store import Store
from tests.integration.outbox.conftest import Outbox

ROWS = 300
# Small rows, and here and there one that is larger than the smallest page.
FILL = """
SELECT count(rung.notify('recipient-' || i % 40, 'order_shipped',
                         jsonb_build_object('text', repeat('x', CASE WHEN i % 17 = 0 THEN 3000 ELSE i % 90 END)),
                         i::text))
FROM generate_series(1, 300) i
"""


@pytest.fixture
def store(outbox: Outbox) -> Iterator[Store]:
    """A replica's way to the database."""
    store = Store(outbox.url, uuid4())
    store.connect()
    yield store
    store.close()


@pytest.mark.parametrize("buckets", [tuple(range(64)), tuple(range(0, 64, 3))], ids=["all", "some"])
def test_every_row_comes_once_whatever_a_page_holds(outbox: Outbox, store: Store, buckets: tuple[int, ...]) -> None:
    """A page may end by its rows, by its bytes, by the end of its stretch, or at a row that is not the group's."""
    seen = outbox.sql("SELECT pg_current_snapshot()::text")[0][0]
    outbox.sql(FILL)
    until = outbox.sql("SELECT pg_current_snapshot()::text")[0][0]
    # What is committed later belongs to a later read.
    outbox.sql("SELECT rung.notify('recipient-1', 'order_shipped', '{}', 'later')")
    of_group = "SELECT seq FROM rung.outbox WHERE bucket = ANY (%s::smallint[]) AND payload ->> 'dedup_key' <> 'later'"
    wanted = [seq for (seq,) in outbox.sql(f"{of_group} ORDER BY seq", list(buckets))]
    for rows in (7, 100, 1_000):
        for payload_bytes in (1, 500, 2_500, 20_000, 1 << 24):
            found: list[int] = []
            after: int | None = 0
            while after is not None and len(found) <= ROWS:
                page = store.walk(Group(Position(seen, until, after), buckets), rows, payload_bytes)
                found += [row.seq for row in page.rows]
                assert page.last_seq is None or page.last_seq > after
                after = page.last_seq
            assert found == wanted, (rows, payload_bytes)
