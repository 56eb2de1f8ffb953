"""Partitions of the outbox: there is always one to write to, and none goes while a row of it is unpublished."""

from __future__ import annotations

from relay.outbox.upkeep import keep_partitions
from tests.integration.outbox.conftest import Outbox
from tests.support.eventually import eventually

NOTIFY = "SELECT rung.notify(%s, 'order_shipped', '{}', %s)"
LIST = "SELECT from_seq, to_seq FROM rung.outbox_partition ORDER BY from_seq"


def small_partitions(outbox: Outbox) -> None:
    """Partitions of ten rows from the start: the empty ones that the migration made are replaced."""
    for (name,) in outbox.sql("SELECT name FROM rung.outbox_partition"):
        outbox.sql(f"DROP TABLE rung.{name}")
    outbox.sql("DELETE FROM rung.outbox_partition")
    keep_partitions(outbox.url, ahead=3, rows=10)


def write(outbox: Outbox, count: int) -> None:
    """So many rows, each in its own transaction."""
    for n in range(count):
        outbox.sql(NOTIFY, f"p{n % 7}", str(n))


def test_partitions_are_added_ahead_of_the_sequence(outbox: Outbox) -> None:
    """At least the rows asked for fit, in ranges without a gap, also while a transaction that has written is open."""
    small_partitions(outbox)
    assert outbox.sql(LIST) == [(1, 11), (11, 21), (21, 31), (31, 41)]
    write(outbox, 12)
    with outbox.connect() as open_one, open_one.transaction():
        open_one.execute(NOTIFY, ("ada", "open"))
        assert keep_partitions(outbox.url, ahead=3, rows=10) == (1, [])
    assert outbox.sql(LIST)[-1] == (41, 51)
    assert keep_partitions(outbox.url, ahead=3, rows=10) == (0, [])


def test_what_is_published_is_dropped_and_nothing_else(outbox: Outbox) -> None:
    """Full partitions go when every bucket's stored cursor has passed them, and the newest one stays."""
    small_partitions(outbox)
    write(outbox, 25)
    assert keep_partitions(outbox.url, ahead=3, rows=10)[1] == []
    with outbox.relay(upkeep_seconds=0.1, partition_rows=10, partitions_ahead=3):
        outbox.records(25)
        eventually(lambda: outbox.sql(LIST)[0] == (21, 31), describe="two partitions to be dropped")
        outbox.sql(NOTIFY, "ada", "last")
        outbox.records(26)
    assert outbox.sql("SELECT count(*) FROM rung.outbox") == [(6,)]
    assert len(outbox.all_records()) == 26


def test_a_partition_waits_for_the_transaction_that_wrote_to_it(outbox: Outbox) -> None:
    """A transaction that wrote into a partition and is still open keeps it, and its row is published in the end."""
    small_partitions(outbox)
    changes = {"upkeep_seconds": 0.1, "partition_rows": 10, "partitions_ahead": 3}
    with outbox.relay(**changes), outbox.connect() as slow:
        with slow.transaction():
            slow.execute(NOTIFY, ("ada", "slow"))
            write(outbox, 25)
            outbox.records(25)
            full = "SELECT count(full_xid) FROM rung.outbox_partition"
            eventually(lambda: outbox.sql(full) == [(2,)], describe="two partitions to be found full")
            assert keep_partitions(outbox.url, ahead=3, rows=10)[1] == []
            assert outbox.sql(LIST)[0] == (1, 11)
        outbox.records(26)
        eventually(lambda: outbox.sql(LIST)[0] == (21, 31))


def test_an_interrupted_detach_is_taken_up_again(outbox: Outbox) -> None:
    """A detached partition that was not dropped is dropped the next time; a row that is found unread goes out again."""
    small_partitions(outbox)
    with outbox.relay(upkeep_seconds=3600):
        write(outbox, 25)
        outbox.records(25)
        published = "SELECT min(cursor_xid) >= pg_snapshot_xmax(pg_current_snapshot()) FROM rung.outbox_cursor"
        outbox.sql(
            "UPDATE rung.outbox_partition SET full_xid = pg_snapshot_xmax(pg_current_snapshot()) WHERE to_seq <= 21"
        )
        eventually(
            lambda: outbox.sql(
                "SELECT min(c.cursor_xid) >= max(p.full_xid) FROM rung.outbox_cursor c, rung.outbox_partition p"
            )[0][0],
            describe=published,
        )
        first = outbox.sql("SELECT name FROM rung.outbox_partition ORDER BY from_seq LIMIT 1")[0][0]
        outbox.sql(f"ALTER TABLE rung.outbox DETACH PARTITION rung.{first}")
        # As if its writer had drawn the number early and got its transaction id late.
        outbox.sql(f"UPDATE rung.{first} SET xid = '9000000000' WHERE seq = 3")
        late = str(outbox.sql(f"SELECT id FROM rung.{first} WHERE seq = 3")[0][0])
        dropped = keep_partitions(outbox.url, ahead=3, rows=10)[1]
        assert len(dropped) == 2
        assert dropped[0] == first
        ids = [r.header("ce_id") for r in outbox.records(26)]
        assert ids.count(late) == 2
