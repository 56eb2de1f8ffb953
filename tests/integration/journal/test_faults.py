"""What the journal does with bad records, with PostgreSQL away, and with settings that cannot work."""

from __future__ import annotations

import dataclasses
import threading

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from psycopg import sql

from deploy.topics import ensure_topics
from relay.journal.config import JournalConfig
from relay.journal.service import run
from schemas.records import EventType
from schemas.topics import DAY_MS, DEAD_LETTERS, DELIVERY_EVENTS, Naming
from tests.support.eventually import eventually
from tests.support.header_names import send_with_header_name
from tests.support.journal import event, now_ms, on_wire, running
from tests.support.kafka import Record, produce, produce_compressed, read_all


def recipients(url: str) -> list[str]:
    """Whom the journal's events are about."""
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT recipient FROM rung.delivery_event ORDER BY 1").fetchall()]


def test_bad_records_become_one_dead_letter_each_and_the_partition_goes_on(kafka: str, config: JournalConfig) -> None:
    """Whatever cannot be read or stored is set aside byte for byte with its reason, and the rest is written."""
    topic = config.naming(DELIVERY_EVENTS)
    _, value, headers = on_wire(event("ada"))
    nul = on_wire(event("ada", detail="a\0b"))
    wild = on_wire(event("ada", at=now_ms() + 3 * DAY_MS))
    huge = on_wire(event("ada", attempt=10**12))
    produce(
        kafka,
        topic,
        [
            ("ada", b"no json", headers),
            ("ada", b"\xff\xfe", headers),
            ("ada", b"{}", headers),
            ("ada", None, headers),
            (None, value, headers),
            (b"\xff", value, headers),
            ("bob", value, headers),
            ("ada", value),
            ("ada", value, {**headers, "ce_type": b"rung.unheard_of"}),
            ("ada", b'{"a":' * 200_000, headers),
            nul,
            wild,
            huge,
            on_wire(event("last")),
        ],
        partition=0,
    )
    send_with_header_name(kafka, topic, b"ada", value, b"\xff")
    with running(config) as registry:
        eventually(lambda: recipients(config.database_url) == ["last"])
        *letters, nameless = sorted(read_all(kafka, config.naming(DEAD_LETTERS), until=14), key=_nameless)
        assert (nameless.value, nameless.header("rung_dl_reason")) == (value, "bad_header")
        eventually(lambda: registry.get_sample_value("rung_dead_letters_total", _label("null_value")) == 1)
        assert registry.get_sample_value("rung_dead_letters_total", _label("bad_field")) == 4
    reasons = [letter.header("rung_dl_reason") for letter in sorted(letters, key=_offset)]
    assert reasons == [
        *("not_json", "not_utf8", "bad_field", "null_value", "null_key", "key_not_utf8", "key_mismatch"),
        *("missing_header", "unknown_type", "not_json", "bad_field", "bad_field", "bad_field"),
    ]
    by_offset = {_offset(letter): letter for letter in letters}
    assert by_offset[10].value == nul[1]
    assert by_offset[0].header("ce_id") == headers["ce_id"].decode()
    assert len(read_all(kafka, config.naming(DEAD_LETTERS))) == 14


def _label(reason: str) -> dict[str, str]:
    return {"service": "journal", "reason": reason}


def _nameless(letter: Record) -> bool:
    return letter.header("rung_dl_reason") == "bad_header"


def _offset(letter: object) -> int:
    return int(letter.header("rung_dl_offset"))  # type: ignore[attr-defined]


def test_a_record_that_is_too_large_for_the_dead_letters(kafka: str, config: JournalConfig) -> None:
    """Compressed it was small enough for its topic. What fits is set aside, and the partition goes on."""
    topic = config.naming(DELIVERY_EVENTS)
    _, _, headers = on_wire(event("ada"))
    produce_compressed(kafka, topic, b"ada", b"x" * 5_000_000, headers)
    produce(kafka, topic, [on_wire(event("last"))], partition=0)
    with running(config):
        eventually(lambda: recipients(config.database_url) == ["last"])
    (letter,) = read_all(kafka, config.naming(DEAD_LETTERS), 1)
    assert (letter.key, letter.value, letter.header("rung_dl_reason")) == (b"ada", None, "not_json")


def test_postgresql_away_and_back_loses_nothing(kafka: str, config: JournalConfig) -> None:
    """While the database refuses connections the journal waits; afterwards it writes everything once."""
    topic, name = config.naming(DELIVERY_EVENTS), config.database_url.rsplit("/", 1)[1].split("?")[0]
    server = config.database_url.replace(f"/{name}", "/postgres")
    with running(config) as registry, psycopg.connect(server, autocommit=True) as admin:
        produce(kafka, topic, [on_wire(event("before"))])
        eventually(lambda: recipients(config.database_url) == ["before"])
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        produce(kafka, topic, [on_wire(event("while-away"))])
        eventually(lambda: (registry.get_sample_value("rung_journal_retries_total") or 0) >= 2)
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(sql.Identifier(name)))
        eventually(lambda: recipients(config.database_url) == ["before", "while-away"])
        assert registry.get_sample_value("rung_journal_fenced_total") == 0


def test_told_to_stop_while_postgresql_is_away(kafka: str, config: JournalConfig) -> None:
    """A journal that waits for its database ends in time when told to."""
    away = dataclasses.replace(config, database_url="postgresql://nobody@127.0.0.1:9/none")
    with running(away) as registry:
        eventually(lambda: (registry.get_sample_value("rung_journal_retries_total") or 0) >= 2)


def test_a_database_without_the_tables_is_refused(kafka: str, database_url: str, topic_prefix: str) -> None:
    """Waiting would not help: the journal ends with the error."""
    settings = {"bootstrap.servers": kafka}
    with pytest.raises(psycopg.errors.UndefinedTable):
        run(JournalConfig(settings, database_url, Naming(topic_prefix)), threading.Event(), CollectorRegistry())


def test_topics_made_later_are_found(kafka: str, journal_db: str, topic_prefix: str) -> None:
    """A journal that starts before its topics writes once they are there."""
    settings = {"bootstrap.servers": kafka, "topic.metadata.refresh.interval.ms": 500}
    config = JournalConfig(settings, journal_db, Naming(topic_prefix))
    with running(config):
        ensure_topics(settings, Naming(topic_prefix), partitions=1)
        produce(kafka, config.naming(DELIVERY_EVENTS), [on_wire(event("ada"))])
        eventually(lambda: recipients(journal_db) == ["ada"], timeout=30)


def test_metrics_count_steps_and_depth_once(kafka: str, config: JournalConfig) -> None:
    """Steps by outcome, the cancellation ratio's two counters and the escalation depth follow from the events."""
    step = {"step_no": 0, "channel": "push"}
    produce(
        kafka,
        config.naming(DELIVERY_EVENTS),
        [
            on_wire(event(reason="accepted")),
            on_wire(event(reason="retry", next_due_at=5, **step), EventType.STEP_FAILED),
            on_wire(event(reason="sent", **step), EventType.STEP_SENT),
            on_wire(event(reason="resolved", depth=1, **step), EventType.RESOLVED),
            on_wire(event(reason="resolved", step_no=1, channel="chat"), EventType.STEP_SUPPRESSED),
            on_wire(event(reason="in_flight", depth=2, **step), EventType.TOO_LATE),
        ],
        partition=0,
    )
    with running(config) as registry:
        sample = registry.get_sample_value
        eventually(lambda: sample("rung_journal_events_total", {"type": "rung.notification.too_late"}) == 1)
        assert sample("rung_escalation_depth_count", {"kind": "payment"}) == 1
        assert sample("rung_escalation_depth_sum", {"kind": "payment"}) == 1
        assert sample("rung_concluded_steps_total", {"kind": "payment"}) == 2
        assert sample("rung_cancelled_steps_total", {"kind": "payment"}) == 1
        assert [sample("rung_steps_total", {"outcome": o}) for o in ("sent", "suppressed", "failed")] == [1, 1, 0]
