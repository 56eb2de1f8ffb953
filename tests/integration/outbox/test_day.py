"""A day of the outbox: 24 hours of load as it comes in a day, the upkeep of its partitions, and what is left of it."""

from __future__ import annotations

import math

import pytest

from relay.outbox.upkeep import keep_partitions
from tests.integration.outbox.conftest import Outbox
from tests.support.eventually import eventually

PARTITION_ROWS = 200
AHEAD = 4
MEAN_ROWS = 500
"""Of an hour; at noon twice as many, at midnight none."""
FILL = """
SELECT count(rung.notify('recipient-' || i %% 97, 'order_shipped', '{}', %s::text || ':' || i))
FROM generate_series(1, %s::int) i
"""
LISTED = "SELECT count(*)::int FROM rung.outbox_partition"
ATTACHED = "SELECT count(*)::int FROM pg_inherits WHERE inhparent = 'rung.outbox'::regclass"
BYTES = """
SELECT sum(pg_total_relation_size(inhrelid))::bigint FROM pg_inherits WHERE inhparent = 'rung.outbox'::regclass
"""
PUBLISHED = """
SELECT min(cursor_xid) >= (SELECT coalesce(max(xid), '0') FROM rung.outbox) FROM rung.outbox_cursor
"""


def rows_of(hour: int) -> int:
    """How many rows come in an hour of the day."""
    return round(MEAN_ROWS * (1 - math.cos(2 * math.pi * hour / 24)))


@pytest.mark.timeout(300)
def test_a_day_leaves_the_table_as_small_as_it_was(outbox: Outbox) -> None:
    """12,000 rows in partitions of 200. After each hour there are the partitions ahead and the newest one, whatever
    came in it. In the evening a business transaction stays open for three hours: as long nothing goes, though all
    others are published, and afterwards everything does. Every row is published once."""
    for (name,) in outbox.sql("SELECT name FROM rung.outbox_partition"):
        outbox.sql(f"DROP TABLE rung.{name}")
    outbox.sql("DELETE FROM rung.outbox_partition")
    keep_partitions(outbox.url, AHEAD, PARTITION_ROWS)
    least = outbox.sql(LISTED)[0][0]
    written = 0
    partitions: list[int] = []
    sizes: list[int] = []
    settings = {"upkeep_seconds": 3_600, "partition_rows": PARTITION_ROWS, "partitions_ahead": AHEAD}
    with outbox.relay(**settings), outbox.connect() as slow:
        for hour in range(24):
            if hour == 18:
                slow.execute("BEGIN")
                slow.execute("SELECT rung.notify('ada', 'order_shipped', '{}', 'slow')")
            if hour == 21:
                slow.execute("COMMIT")
                written += 1
            written += rows_of(hour)
            for first in range(0, rows_of(hour), PARTITION_ROWS):
                # As the upkeep does in time: there is always a partition to write to.
                keep_partitions(outbox.url, AHEAD, PARTITION_ROWS)
                part = min(PARTITION_ROWS, rows_of(hour) - first)
                outbox.sql(FILL, f"{hour}-{first}", part)
            outbox.records(written)
            if not 18 <= hour < 21:
                eventually(lambda: outbox.sql(PUBLISHED)[0][0], describe="the cursors have passed what is published")
            keep_partitions(outbox.url, AHEAD, PARTITION_ROWS)
            partitions.append(outbox.sql(LISTED)[0][0])
            sizes.append(outbox.sql(BYTES)[0][0])
    day = [count for hour, count in enumerate(partitions) if not 18 <= hour < 21]
    assert max(day) <= least + 1, partitions
    assert partitions[20] >= least + (rows_of(18) + rows_of(19) + rows_of(20)) // PARTITION_ROWS - 1, partitions
    assert outbox.sql(ATTACHED) == outbox.sql(LISTED)
    # The first hours have the partitions ahead and one that rows have come to.
    assert sizes[-1] <= 1.5 * max(sizes[:4]), sizes
    assert sizes[20] > 2 * sizes[-1], sizes
    assert outbox.sql("SELECT count(*)::int FROM rung.outbox")[0][0] <= 2 * PARTITION_ROWS
    assert len(outbox.all_records()) == written
