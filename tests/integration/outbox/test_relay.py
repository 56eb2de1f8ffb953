"""The relay on real PostgreSQL and Kafka: what is committed is published, and nothing else."""

from __future__ import annotations

import json
import uuid

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from relay.outbox import queries
from schemas import codec
from schemas.ids import notification_id
from schemas.partitioner import partition_of
from schemas.records import EraseRecipient, Notify, PutRecipient, Resolve
from schemas.topics import NOTIFICATIONS, RESOLUTIONS
from tests.integration.outbox.conftest import Outbox, read_parameters
from tests.support.eventually import eventually
from tests.support.kafka import Record

NOTIFY = "SELECT rung.notify(%s, 'order_shipped', '{}', %s)"


def keys(records: list[Record]) -> list[str]:
    """The dedup keys, in the order read."""
    return [json.loads(record.value or b"")["dedup_key"] for record in records]


def test_each_function_becomes_a_record_that_its_reader_understands(outbox: Outbox) -> None:
    """All four functions, through PostgreSQL and Kafka, decode to the structs of the contract with the row's id."""
    with outbox.connect() as connection, connection.transaction():
        connection.execute("SELECT rung.put_recipient('ada', %s)", ['{"time_zone": "Europe/Berlin", "locale": "de"}'])
        connection.execute(
            "SELECT rung.notify('ada', 'order_shipped', '{\"n\": 1}', 'o-1', '2031-05-01 12:00:00.25+00')"
        )
        connection.execute("SELECT rung.erase_recipient('ada')")
        connection.execute("SELECT rung.resolve('ada', 'o-1', 'read')")
    rows = outbox.sql(
        "SELECT id::text, type, (extract(epoch FROM created_at)*1000)::bigint FROM rung.outbox ORDER BY seq"
    )
    with outbox.relay():
        records = outbox.records(4)
    told = [r for r in records if r.topic == outbox.config.naming(NOTIFICATIONS)]
    resolved = [r for r in records if r.topic == outbox.config.naming(RESOLUTIONS)]
    decoded = [codec.decode(NOTIFICATIONS, r.key, r.value, r.headers) for r in told]
    decoded += [codec.decode(RESOLUTIONS, r.key, r.value, r.headers) for r in resolved]
    put, notify, erase, resolve = (d.record for d in decoded)
    assert isinstance(put, PutRecipient)
    assert put.profile.time_zone == "Europe/Berlin"
    assert notify == Notify(
        notification_id=notification_id("ada", "o-1"),
        recipient="ada",
        kind="order_shipped",
        dedup_key="o-1",
        data={"n": 1},
        expires_at=1935403200250,
    )
    assert erase == EraseRecipient(recipient="ada")
    assert resolve == Resolve(recipient="ada", dedup_key="o-1", resolution="read")
    assert [(d.envelope.id, d.envelope.type, d.envelope.time) for d in decoded] == rows
    assert {d.envelope.source for d in decoded} == {"/rung/outbox"}


def test_transactions_that_commit_in_reverse_order_are_both_published(outbox: Outbox) -> None:
    """A row with a lower number and a lower xid that commits after a higher one was published is not skipped."""
    with outbox.relay(), outbox.connect() as first, outbox.connect() as second:
        with first.transaction():
            first.execute(NOTIFY, ("ada", "first"))
            with second.transaction():
                second.execute(NOTIFY, ("ada", "second"))
            assert keys(outbox.records(1)) == ["second"]
        assert keys(outbox.records(2)) == ["second", "first"]
    assert len(outbox.all_records()) == 2


def test_a_rollback_leaves_nothing(outbox: Outbox) -> None:
    """A transaction, or a savepoint, that is rolled back is never published."""
    with outbox.relay(), outbox.connect() as connection:
        with connection.transaction():
            connection.execute(NOTIFY, ("ada", "undone"))
            raise psycopg.Rollback
        with connection.transaction():
            connection.execute(NOTIFY, ("ada", "kept"))
            with connection.transaction():
                connection.execute(NOTIFY, ("ada", "undone too"))
                raise psycopg.Rollback
        connection.execute(NOTIFY, ("ada", "last"))
        outbox.records(2)
    assert keys(outbox.all_records()) == ["kept", "last"]


def test_a_statement_of_ten_thousand_rows_keeps_its_order(outbox: Outbox) -> None:
    """One statement that writes 10,000 rows for 50 people: all arrive once, each person's in order, over many pages."""
    count = 10_000
    with outbox.relay(page_rows=700, max_waiting_per_bucket=300, max_waiting=2_000):
        outbox.sql(
            "SELECT rung.notify('p' || i %% 50, 'order_shipped', '{}', i::text) FROM generate_series(1, %s) i", count
        )
        records = outbox.records(count, timeout=60)
    assert len(outbox.all_records()) == count
    by_person: dict[bytes | None, list[int]] = {}
    for record, key in zip(records, keys(records), strict=True):
        by_person.setdefault(record.key, []).append(int(key))
    assert len(by_person) == 50
    assert all(numbers == sorted(numbers) for numbers in by_person.values())
    assert sum(map(len, by_person.values())) == count


def test_an_open_transaction_holds_the_cursor_and_not_publication(outbox: Outbox) -> None:
    """An unrelated transaction that stays open shows as age and pid and holds cursor_xid; rows go out all the same."""
    held = "rung_outbox_cursor_held_seconds"
    with outbox.relay() as relay, outbox.connect() as idle:
        with idle.transaction():
            xid = int(idle.execute("SELECT pg_current_xact_id()::text").fetchone()[0])
            for n in range(20):
                outbox.sql(NOTIFY, "ada", str(n))
            assert keys(outbox.records(20)) == [str(n) for n in range(20)]
            # One of the relay's own may be the oldest at first, for as long as it takes.
            eventually(
                lambda: relay.metric("rung_outbox_cursor_held_by_pid") == idle.info.backend_pid,
                describe="the pid of the open transaction",
            )
            eventually(lambda: relay.metric(held) > 0.5, describe="the age of the open transaction")
            # What is published is stored as such, although cursor_xid cannot pass the open transaction.
            stored = "SELECT max(cursor_xid::text::bigint), bool_and(pg_visible_in_snapshot(o.xid, c.seen)) "
            stored += "FROM rung.outbox_cursor c, rung.outbox o WHERE o.bucket = c.bucket"
            eventually(lambda: outbox.sql(stored)[0][1] is True)
            assert outbox.sql(stored)[0][0] <= xid
        eventually(
            lambda: outbox.sql("SELECT min(cursor_xid::text::bigint) > %s FROM rung.outbox_cursor", xid)[0][0],
            describe="the cursor to move on",
        )
        eventually(lambda: relay.metric(held) < 0.5)
    assert len(outbox.all_records()) == 20


def test_a_restart_does_not_repeat_what_an_open_transaction_held_back(outbox: Outbox) -> None:
    """A relay that stops and starts while the cursor is held publishes nothing a second time, and misses nothing."""
    with outbox.connect() as slow, slow.transaction():
        slow.execute(NOTIFY, ("ada", "slow"))
        with outbox.relay():
            outbox.sql(NOTIFY, "ada", "quick")
            outbox.records(1)
        with outbox.relay():
            outbox.sql(NOTIFY, "ada", "later")
            outbox.records(2)
    with outbox.relay():
        outbox.records(3)
    assert keys(outbox.all_records()) == ["quick", "later", "slow"]


def test_a_row_of_two_megabytes_is_set_aside_and_the_rest_goes_on(outbox: Outbox) -> None:
    """A row that was written past the functions and that Kafka would not take: it lands in outbox_dead, and its
    recipient's other rows are published."""
    insert = """
    INSERT INTO rung.outbox (aggregatetype, aggregateid, type, payload)
    SELECT 'notifications', 'ada', 'rung.notify',
           jsonb_build_object('notification_id', rung.notification_id('ada', %s::text), 'recipient', 'ada',
                              'kind', 'order_shipped', 'dedup_key', %s::text,
                              'data', jsonb_build_object('x', repeat('y', %s)))
    """
    with outbox.relay() as relay:
        outbox.sql(NOTIFY, "ada", "before")
        outbox.sql(insert, "big", "big", 2_000_000)
        # Just below the limit of the value, and above that of the record with its headers.
        outbox.sql(insert, "edge", "edge", 1_048_400)
        outbox.sql("SELECT rung.notify('ada', 'order_shipped', jsonb_build_object('x', repeat('y', 1000000)), 'fits')")
        outbox.sql(NOTIFY, "ada", "after")
        assert keys(outbox.records(3)) == ["before", "fits", "after"]
        eventually(lambda: outbox.dead() == [(2, "too_large"), (3, "too_large")])
        eventually(lambda: relay.metric("rung_outbox_dead_total", reason="too_large") == 2)
    assert outbox.sql("SELECT payload ->> 'dedup_key' FROM rung.outbox_dead ORDER BY seq") == [("big",), ("edge",)]


def test_a_record_that_the_broker_refuses_is_set_aside(outbox: Outbox) -> None:
    """A broker that takes less than the catalogue says: the large row is set aside, all others arrive, in order."""
    entry = ConfigEntry("max.message.bytes", "200000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, outbox.config.naming(NOTIFICATIONS), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": outbox.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    random = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 20000) i)"
    with outbox.connect() as connection, connection.transaction():
        connection.execute(NOTIFY, ("ada", "1"))
        connection.execute(f"SELECT rung.notify('ada', 'order_shipped', jsonb_build_object('x', {random}), '2')")
        connection.execute(NOTIFY, ("ada", "3"))
    with outbox.relay() as relay:
        eventually(lambda: outbox.dead() == [(2, "too_large")])
        outbox.sql(NOTIFY, "ada", "4")
        eventually(lambda: relay.metric("rung_outbox_waiting_rows") == 0 and "4" in keys(outbox.all_records()))
    first_seen = list(dict.fromkeys(keys(outbox.all_records())))
    assert first_seen == ["1", "3", "4"]


def test_rows_that_no_reader_could_take_are_set_aside_with_their_reason(outbox: Outbox) -> None:
    """Rows of another writer: wrong topic, type, key or payload. Each is set aside, and good rows around it go on."""
    bad = [
        ("elsewhere", "ada", "rung.notify", "{}", "unknown_type"),
        ("notifications", "ada", "rung.resolve", "{}", "unknown_type"),
        ("notifications", "ada", "rung.erase_recipient", '{"recipient": "bob"}', "key_mismatch"),
        ("notifications", "", "rung.erase_recipient", '{"recipient": ""}', "null_key"),
        ("notifications", "ada", "", '{"recipient": "ada"}', "missing_header"),
        ("notifications", "ada", "rung.erase_recipient", "[1]", "bad_field"),
        ("resolutions", "ada", "rung.resolve", '{"recipient": "ada", "dedup_key": 1, "resolution": "x"}', "bad_field"),
    ]
    with outbox.relay():
        outbox.sql(NOTIFY, "ada", "before")
        for kind, person, type_, payload, _reason in bad:
            outbox.sql(
                "INSERT INTO rung.outbox (aggregatetype, aggregateid, type, payload) VALUES (%s, %s, %s, %s)",
                kind,
                person,
                type_,
                payload,
            )
        outbox.sql(NOTIFY, "ada", "after")
        assert keys(outbox.records(2)) == ["before", "after"]
        eventually(lambda: outbox.dead() == [(n + 2, row[4]) for n, row in enumerate(bad)])
    assert len(outbox.all_records()) == 2


def test_recipients_and_data_of_any_script_arrive_as_they_were(outbox: Outbox) -> None:
    """Emoji, right-to-left text and NFC against NFD: byte for byte the same, and the two spellings stay two people."""
    people = ["👩🏽‍🚀", "שלום עולם", "caf\u00e9", "cafe\u0301", "\u202eevil", "a b"]
    text = 'مرحبا 👋 \u2028 "quoted" \\ \u0001'
    with outbox.relay():
        for person in people:
            outbox.sql(
                "SELECT rung.notify(%s, 'order_shipped', %s, %s)", person, json.dumps({"t": text}), "🔑" + person
            )
        records = outbox.records(len(people))
    assert {record.key for record in records} == {person.encode() for person in people}
    for record in records:
        value = json.loads(record.value or b"")
        person = value["recipient"]
        assert (person.encode(), value["data"], value["dedup_key"]) == (record.key, {"t": text}, "🔑" + person)
        assert value["notification_id"] == str(notification_id(person, "🔑" + person))
    assert len({json.loads(r.value or b"")["notification_id"] for r in records}) == len(people)


def test_the_same_key_goes_to_the_partition_that_java_would_choose(outbox: Outbox) -> None:
    """The partition of a recipient is murmur2's, computed here on its own."""
    people = [f"person-{n}" for n in range(40)]
    with outbox.relay():
        for person in people:
            outbox.sql(NOTIFY, person, "k")
        records = outbox.records(len(people))
    assert {r.key: r.partition for r in records} == {p.encode(): partition_of(p.encode(), 4) for p in people}


def test_ids_given_by_the_caller_stay(outbox: Outbox) -> None:
    """A notification id of the caller's own is used and returned; a row's ce_id is its own all the same."""
    mine = uuid.uuid4()
    rows = outbox.sql("SELECT rung.notify('ada', 'order_shipped', '{}', 'k', NULL, %s)", mine)
    assert rows == [(mine,)]
    with outbox.relay():
        (record,) = outbox.records(1)
    assert json.loads(record.value or b"")["notification_id"] == str(mine)
    assert record.header("ce_id") == str(outbox.sql("SELECT id FROM rung.outbox")[0][0]) != str(mine)


def test_a_long_read_across_rows_that_are_published_already(outbox: Outbox) -> None:
    """More rows of a late transaction than fit a page, far behind what is published: each once, in order."""
    with outbox.relay(page_rows=5), outbox.connect() as slow:
        with slow.transaction():
            for n in range(12):
                slow.execute(NOTIFY, (f"p{n % 3}", f"slow-{n:02}"))
            outbox.sql(
                "SELECT rung.notify('p' || i % 3, 'order_shipped', '{}', i::text) FROM generate_series(1, 300) i"
            )
            outbox.records(300)
            for n in range(12, 24):
                slow.execute(NOTIFY, (f"p{n % 3}", f"slow-{n:02}"))
        records = outbox.records(324)
    assert len(outbox.all_records()) == 324
    for person in range(3):
        late = [k for k in keys([r for r in records if r.key == f"p{person}".encode()]) if k.startswith("slow")]
        assert late == [f"slow-{n:02}" for n in range(person, 24, 3)]


def test_a_read_costs_what_is_new_and_not_what_was_published(outbox: Outbox) -> None:
    """With 20,000 published rows and the cursor held all the while, a read touches a few dozen pages of the table."""
    with outbox.connect() as idle, idle.transaction():
        idle.execute("SELECT pg_current_xact_id()")
        outbox.sql("SELECT rung.notify('p' || i % 50, 'order_shipped', '{}', i::text) FROM generate_series(1, 20000) i")
        outbox.sql("VACUUM ANALYZE rung.outbox")
        (seen,) = outbox.sql("SELECT pg_current_snapshot()::text")[0]
        outbox.sql(NOTIFY, "ada", "new")
        parameters = read_parameters(seen, 2000)
        with outbox.connect() as connection:
            connection.execute(queries.SESSION)
            connection.prepare_threshold = 0
            explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + queries.READ
            ((plan,),) = connection.execute(explain, parameters).fetchall()
    assert plan[0]["Plan"]["Actual Rows"] == 2  # The snapshot and the new row.
    assert plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"] < 100


def test_a_login_with_the_relay_role_alone_can_run_the_relay(outbox: Outbox) -> None:
    """The role has what the relay needs: it publishes, sets aside, adds partitions, names who holds the cursor."""
    login = f"relay_{uuid.uuid4().hex[:8]}"
    outbox.sql(f"CREATE ROLE {login} LOGIN IN ROLE rung_relay")
    try:
        url = outbox.url.replace("//postgres@", f"//{login}@")
        outbox.sql("INSERT INTO rung.outbox (aggregatetype, aggregateid, type, payload) VALUES ('x', 'ada', 'x', '{}')")
        outbox.sql(NOTIFY, "ada", "1")
        with outbox.relay(database_url=url, partitions_ahead=9) as relay, outbox.connect() as idle, idle.transaction():
            idle.execute("SELECT pg_current_xact_id()")
            outbox.records(1)
            eventually(lambda: outbox.dead() == [(1, "unknown_type")])
            outbox.sql(NOTIFY, "ada", "2")
            eventually(lambda: relay.metric("rung_outbox_cursor_held_by_pid") == idle.info.backend_pid)
            eventually(lambda: outbox.sql("SELECT count(*) > 9 FROM rung.outbox_partition")[0][0])
        with psycopg.connect(url, autocommit=True) as connection:
            for refused in (
                "DELETE FROM rung.outbox",
                "INSERT INTO rung.kind VALUES ('x')",
                "DELETE FROM rung.outbox_dead",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(refused)
    finally:
        outbox.sql(f"DROP ROLE {login}")
