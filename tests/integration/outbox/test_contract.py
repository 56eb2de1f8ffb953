"""The SQL contract: what the four functions take, refuse and write, and who may do what."""

from __future__ import annotations

import json
import uuid
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg import sql

from relay.outbox.kinds import publish_kinds
from schemas.ids import notification_id
from schemas.records import EraseRecipient, Notify, PutRecipient, Resolve

LONG = "é" * 257
"""514 bytes in 257 characters."""


def deep(levels: int) -> str:
    """A JSON object of so many levels."""
    return '{"a": ' * levels + "1" + "}" * levels


def query(url: str, statement: str, *parameters: object) -> list[Any]:
    """Run one statement and return its rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


REFUSED = [
    ("rung.notify(NULL, 'order_shipped', '{}', 'k')", "recipient", "is null"),
    ("rung.notify('', 'order_shipped', '{}', 'k')", "recipient", "is empty"),
    (f"rung.notify('{LONG}', 'order_shipped', '{{}}', 'k')", "recipient", "is 514 bytes long"),
    (r"rung.notify(E'a\nb', 'order_shipped', '{}', 'k')", "recipient", "holds a control character"),
    (r"rung.notify(E'a\u0085b', 'order_shipped', '{}', 'k')", "recipient", "holds a control character"),
    (r"rung.notify(E'a\x7f', 'order_shipped', '{}', 'k')", "recipient", "holds a control character"),
    ("rung.notify('a', NULL, '{}', 'k')", "kind", "is null"),
    ("rung.notify('a', 'order_shiped', '{}', 'k')", "kind", "is not known: 'order_shiped'"),
    ("rung.notify('a', 'order_shipped', NULL, 'k')", "data", "is null"),
    ("rung.notify('a', 'order_shipped', '[]', 'k')", "data", "is a JSON array and not an object"),
    ("rung.notify('a', 'order_shipped', 'null', 'k')", "data", "is a JSON null and not an object"),
    ("rung.notify('a', 'order_shipped', '{}', NULL)", "dedup_key", "is null"),
    ("rung.notify('a', 'order_shipped', '{}', '')", "dedup_key", "is empty"),
    (f"rung.notify('a', 'order_shipped', '{{}}', '{LONG}')", "dedup_key", "is 514 bytes long"),
    ("rung.notify('a', 'order_shipped', '{}', 'k', 'infinity')", "expires_at", "is out of range"),
    ("rung.notify('a', 'order_shipped', '{}', 'k', '1969-12-31')", "expires_at", "is out of range"),
    ("rung.resolve(NULL, 'k', 'read')", "recipient", "is null"),
    ("rung.resolve('a', '', 'read')", "dedup_key", "is empty"),
    ("rung.resolve('a', 'k', NULL)", "resolution", "is null"),
    ("rung.resolve('a', 'k', repeat('x', 129))", "resolution", "is 129 bytes long"),
    ("rung.put_recipient('', '{}')", "recipient", "is empty"),
    ("rung.put_recipient('a', NULL)", "profile", "is null"),
    (f"rung.notify('a', 'order_shipped', '{deep(65)}', 'k')", "data", "is nested deeper than 64 levels"),
    ("""rung.notify('a', 'order_shipped', '{"n": [1e100000]}', 'k')""", "data", "holds a number beyond 1e308"),
    ("""rung.notify('a', 'order_shipped', '{"n": {"m": -1e309}}', 'k')""", "data", "holds a number beyond 1e308"),
    (f"""rung.notify('a', 'order_shipped', '{{"n": {"9" * 5000}}}', 'k')""", "data", "holds a number beyond 1e308"),
    (
        """rung.notify('a', 'order_shipped', jsonb_build_object('x', repeat('x', 1040000)), 'k')""",
        "data",
        "is 1040009 bytes long as JSON text",
    ),
    (
        """rung.put_recipient('a', jsonb_build_object('locale', repeat('x', 250000)))""",
        "profile",
        "is 250014 bytes long as JSON text",
    ),
    ("""rung.put_recipient('a', '{"adresses": {"email": "a@b.test"}}')""", "profile.adresses", "is not known"),
    (
        """rung.put_recipient('a', '{"quiet_hours": {"from": "22:00", "until": "08:00", "to": "1"}}')""",
        "profile.quiet_hours.to",
        "is not known",
    ),
    ("rung.put_recipient('a', '3')", "profile", "is a JSON number and not an object"),
    ("""rung.put_recipient('a', '{"addresses": null}')""", "profile.addresses", "is a JSON null and not an object"),
    ("""rung.put_recipient('a', '{"addresses": {"email": 1}}')""", "profile.addresses.email", "is no string"),
    ("""rung.put_recipient('a', '{"time_zone": "Europe/Berlim"}')""", "profile.time_zone", "is no time zone"),
    ("""rung.put_recipient('a', '{"time_zone": "europe/berlin"}')""", "profile.time_zone", "is no time zone"),
    ("""rung.put_recipient('a', '{"time_zone": "X+3"}')""", "profile.time_zone", "is no time zone"),
    ("""rung.put_recipient('a', '{"time_zone": ""}')""", "profile.time_zone", "is no time zone"),
    ("""rung.put_recipient('a', '{"time_zone": {}}')""", "profile.time_zone", "is no time zone"),
    ("""rung.put_recipient('a', '{"locale": 1}')""", "profile.locale", "is no string"),
    ("""rung.put_recipient('a', '{"quiet_hours": []}')""", "profile.quiet_hours", "is a JSON array and not an object"),
    ("""rung.put_recipient('a', '{"quiet_hours": {"from": "22:00"}}')""", "profile.quiet_hours.until", "is no time"),
    (
        """rung.put_recipient('a', '{"quiet_hours": {"from": "24:00", "until": "08:00"}}')""",
        "profile.quiet_hours.from",
        "is no time",
    ),
    (
        """rung.put_recipient('a', '{"quiet_hours": {"from": "8:00", "until": "09:00"}}')""",
        "profile.quiet_hours.from",
        "is no time",
    ),
    (
        """rung.put_recipient('a', '{"quiet_hours": {"from": "08:00", "until": "08:00"}}')""",
        "profile.quiet_hours",
        "starts when it ends",
    ),
    ("""rung.put_recipient('a', '{"preferences": {"news": 1}}')""", "profile.preferences.news", "is no object"),
    (
        """rung.put_recipient('a', '{"preferences": {"news": {"push": "no"}}}')""",
        "profile.preferences.news.push",
        "is no boolean",
    ),
    ("""rung.put_recipient('a', '{"consent": {"news": null}}')""", "profile.consent.news", "is no boolean"),
    ("rung.erase_recipient(NULL)", "recipient", "is null"),
]


def test_a_refused_call_names_its_argument_and_leaves_no_trace(database: str) -> None:
    """Every bad argument is SQLSTATE 22023, with its name first and as the column, a hint, and no row."""
    with psycopg.connect(database, autocommit=True) as connection:
        for call, argument, problem in REFUSED:
            with pytest.raises(psycopg.errors.InvalidParameterValue) as raised:
                connection.execute(sql.SQL("SELECT " + call))  # type: ignore[arg-type]
            diagnosis = raised.value.diag
            assert (diagnosis.message_primary or "").startswith(f"{argument} {problem}"), call
            assert diagnosis.column_name == argument.split(".")[0], call
            assert diagnosis.message_hint, call
        assert connection.execute("SELECT count(*) FROM rung.outbox").fetchone() == (0,)
        # The same transaction may go on after a savepoint, and the same key is free.
        with connection.transaction():
            with pytest.raises(psycopg.errors.InvalidParameterValue), connection.transaction():
                connection.execute("SELECT rung.notify('a', 'nope', '{}', 'k')")
            connection.execute("SELECT rung.notify('a', 'order_shipped', '{}', 'k')")
        assert connection.execute("SELECT count(*) FROM rung.outbox").fetchone() == (1,)


def test_an_unknown_kind_is_told_the_known_ones(database: str) -> None:
    """The hint lists what may be asked for, or says how kinds become known; a kind that was removed is refused."""
    call = "SELECT rung.notify('a', 'gone', '{}', 'k')"
    with pytest.raises(psycopg.Error) as raised:
        query(database, call)
    assert raised.value.diag.message_hint == "Known kinds: order_shipped, payment_action_required."
    assert publish_kinds(database, ["gone", "new", "gone"]) == ["gone", "new"]
    query(database, call)
    publish_kinds(database, [])
    with pytest.raises(psycopg.Error) as raised:
        query(database, call)
    assert "rung ladders apply" in (raised.value.diag.message_hint or "")


def test_payloads_are_the_records_of_the_contract(database: str) -> None:
    """The payload of each function decodes to its struct, times as whole milliseconds, optional parts left out."""
    profile = {
        "addresses": {"email": "ada@example.test"},
        "time_zone": "America/Argentina/Buenos_Aires",
        "locale": None,
        "quiet_hours": {"from": "22:00", "until": "08:00"},
        "preferences": {"news": {"push": False}},
        "consent": {"news": False},
    }
    query(database, "SELECT rung.notify('ada', 'order_shipped', '{\"a\": null}', 'k', '2030-01-01 00:00:00.0015+00')")
    query(database, "SELECT rung.notify('ada', 'order_shipped', '{}', 'k')")
    query(database, "SELECT rung.resolve('ada', 'k', 'paid')")
    query(database, "SELECT rung.put_recipient('ada', %s)", json.dumps(profile))
    query(database, 'SELECT rung.put_recipient(\'ada\', \'{"quiet_hours": null, "time_zone": "UTC"}\')')
    query(database, "SELECT rung.erase_recipient('ada')")
    rows = query(database, "SELECT aggregatetype, aggregateid, type, payload::text FROM rung.outbox ORDER BY seq")
    kinds = (Notify, Notify, Resolve, PutRecipient, PutRecipient, EraseRecipient)
    records = [msgspec.json.decode(row[3], type=kind) for row, kind in zip(rows, kinds, strict=True)]
    assert [row[2] for row in rows] == [kind.TYPE for kind in kinds]
    assert [row[0] for row in rows] == ["notifications"] * 2 + ["resolutions"] + ["notifications"] * 3
    assert {row[1] for row in rows} == {"ada"}
    known = notification_id("ada", "k")
    fields = {"notification_id": known, "recipient": "ada", "kind": "order_shipped", "dedup_key": "k"}
    assert records[0] == Notify(**fields, data={"a": None}, expires_at=1893456000001)
    assert records[1] == Notify(**fields)
    assert "expires_at" not in json.loads(rows[1][3])
    assert records[2] == Resolve(recipient="ada", dedup_key="k", resolution="paid")
    put = msgspec.to_builtins(records[3])
    assert put["profile"] == {k: v for k, v in profile.items() if k != "locale"}


def test_data_may_have_64_levels(database: str) -> None:
    """The limit itself is taken."""
    assert query(database, "SELECT rung.notify('a', 'order_shipped', %s, 'k')", deep(64))


def test_an_unknown_member_is_told_the_known_ones(database: str) -> None:
    """A misspelt member would wipe what it was to set: the hint lists how each is spelt."""
    with pytest.raises(psycopg.Error) as raised:
        query(database, "SELECT rung.put_recipient('a', '{\"timezone\": \"UTC\"}')")
    known = "addresses, time_zone, locale, quiet_hours, preferences, consent"
    assert raised.value.diag.message_hint == f"Known members: {known}."


@pytest.mark.parametrize(
    ("recipient", "dedup_key"),
    [
        ("a", "bc"),
        ("ab", "c"),
        ("caf\u00e9", "k"),
        ("cafe\u0301", "k"),
        ("👩🏽‍🚀", "🔑"),
        ("1:a", "b"),
        ("é" * 256, "k" * 512),
    ],
)
def test_sql_and_python_derive_the_same_id(database: str, recipient: str, dedup_key: str) -> None:
    """The id is the same on both sides, and a valid UUID of version 8."""
    (row,) = query(database, "SELECT rung.notify(%s, 'order_shipped', '{}', %s)", recipient, dedup_key)
    assert row[0] == notification_id(recipient, dedup_key)
    assert (row[0].version, row[0].variant) == (8, uuid.RFC_4122)


def test_characters_that_json_or_text_cannot_hold_are_refused_clearly(database: str) -> None:
    """NUL and a lone surrogate never reach the table: PostgreSQL's own error says what is wrong."""
    call = "SELECT rung.notify('ada', 'order_shipped', %s, 'k')"
    with pytest.raises(psycopg.errors.UntranslatableCharacter, match="unsupported Unicode escape"):
        query(database, call, '{"t": "a\\u0000b"}')
    with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="invalid input syntax for type json"):
        query(database, call, '{"t": "\\ud800"}')
    with pytest.raises(psycopg.DataError, match="NUL"):
        query(database, "SELECT rung.erase_recipient(%s)", "a\0b")
    assert query(database, "SELECT count(*) FROM rung.outbox") == [(0,)]


def test_a_producer_may_call_the_functions_and_read_nothing(database: str) -> None:
    """A login with rung_producer alone can call all four, and reads or writes no table of ours."""
    login = f"shop_{uuid.uuid4().hex[:8]}"
    query(database, f"CREATE ROLE {login} LOGIN IN ROLE rung_producer")
    try:
        with psycopg.connect(database, user=login, autocommit=True) as connection:
            connection.execute("SELECT rung.notify('ada', 'order_shipped', '{}', 'k')")
            connection.execute("SELECT rung.resolve('ada', 'k', 'read')")
            connection.execute("SELECT rung.put_recipient('ada', '{}')")
            connection.execute("SELECT rung.erase_recipient('ada')")
            tables = query(database, "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname='rung'")
            assert len(tables) > 5
            for (table,) in tables:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(sql.SQL(f"SELECT * FROM {table}"))  # type: ignore[arg-type]
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(sql.SQL(f"DELETE FROM {table}"))  # type: ignore[arg-type]
            for call in ("rung.outbox_add_partitions(1, 1)", "rung.check_recipient('a')"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(sql.SQL(f"SELECT {call}"))  # type: ignore[arg-type]
            # An object of the caller's own cannot get into the functions' way.
            connection.execute("CREATE TEMP TABLE kind (name text)")
            connection.execute("SET search_path = pg_temp, public")
            connection.execute("SELECT rung.notify('ada', 'order_shipped', '{}', 'k2')")
        with psycopg.connect(database, autocommit=True) as connection:
            assert connection.execute("SELECT count(*) FROM rung.outbox").fetchone() == (5,)
    finally:
        query(database, f"DROP ROLE {login}")


def test_who_has_no_role_may_do_nothing(database: str) -> None:
    """A login without a role of ours cannot call the functions."""
    login = f"other_{uuid.uuid4().hex[:8]}"
    query(database, f"CREATE ROLE {login} LOGIN")
    try:
        with (
            psycopg.connect(database, user=login, autocommit=True) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute("SELECT rung.notify('ada', 'order_shipped', '{}', 'k')")
    finally:
        query(database, f"DROP ROLE {login}")
