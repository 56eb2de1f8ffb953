"""The audit on real servers: a real history is clean, and each broken promise is found where it lies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client import CollectorRegistry, start_http_server

from relay.audit.book import Fact
from relay.audit.rounds import Auditor
from relay.audit.rules import Rule, Violation
from relay.audit.service import run
from schemas.dead_letters import DeadLetter
from schemas.envelope import Envelope, to_headers
from schemas.reasons import DeadReason
from schemas.records import DeliveryEvent, EventType, PlannedStep
from schemas.topics import DEAD_LETTERS, HOUR_MS, NOTIFICATIONS
from tests.integration.audit.conftest import Traces
from tests.support.audit import at, changed
from tests.support.eventually import eventually
from tests.support.journal import now_ms, running
from tests.support.kafka import create_topics, produce
from tests.support.recipient import ADA, identity, key_of


def made(kind: EventType, about: str, when: int, **fields: object) -> Fact:
    """An event that no processor made."""
    given = {
        "notification_id": identity(about),
        "recipient": ADA,
        "kind": "payment",
        "dedup_key": about,
        "reason": "due",
    }
    return Fact(str(uuid4()), kind, DeliveryEvent(at=when, **given, **fields), 0)  # type: ignore[arg-type]


def accepted(key: str, when: int, due_at: int) -> Fact:
    """A notification with one step on a channel of its own."""
    plan = (PlannedStep(step_no=0, channel="sms", due_at=due_at),)
    return made(EventType.ACCEPTED, key, when, steps=plan, expires_at=when + 24 * HOUR_MS)


def claimed(key: str, when: int, attempt_key: str | None = None) -> Fact:
    """A claim of the first step."""
    name = attempt_key or key_of(key, 0)
    return made(EventType.STEP_CLAIMED, key, when, step_no=0, channel="sms", key=name, due_at=when)


def left_open(traces: Traces) -> None:
    """Accepted an hour ago, and its step never came."""
    traces.emit(accepted("late", now_ms() - HOUR_MS, now_ms() - HOUR_MS))


def after_stop(traces: Traces) -> None:
    """A claim after the resolution."""
    traces.emit(changed(traces.history[at(traces.history, EventType.STEP_CLAIMED)], event_id=str(uuid4())))


def other_key(traces: Traces) -> None:
    """The second claim of a step under another notification's id and key."""
    now = now_ms()
    second = claimed("one", now)
    traces.emit(
        accepted("one", now, now),
        claimed("one", now),
        changed(second, notification_id=identity("two"), key=key_of("two", 0)),
    )


def key_form(traces: Traces) -> None:
    """A key with the attempt's number."""
    now = now_ms()
    traces.emit(accepted("one", now, now), claimed("one", now, key_of("one", 0) + ":1"))


def order(traces: Traces) -> None:
    """Two that are due together, and the later one starts first."""
    now = now_ms()
    traces.emit(accepted("one", now, now), accepted("two", now, now), claimed("two", now), claimed("one", now))


def unanswered(traces: Traces) -> None:
    """A committed request of which no event tells."""
    traces.request("nobody-heard")
    traces.published()


def repeated(traces: Traces) -> None:
    """An event once more."""
    traces.emit(traces.history[at(traces.history, EventType.FINISHED)])


def not_in_the_journal(traces: Traces) -> None:
    """A row of the journal is gone."""
    [(done,)] = traces.sql(
        "WITH d AS (DELETE FROM rung.delivery_event WHERE kafka_offset = 1 RETURNING 1) SELECT count(*) FROM d"
    )
    assert done == 1


def made_up_in_the_journal(traces: Traces) -> None:
    """A row of the journal that is no event."""
    traces.sql(
        "INSERT INTO rung.delivery_event SELECT (e).* FROM (SELECT jsonb_populate_record(d, "
        "jsonb_build_object('event_id', gen_random_uuid())) AS e FROM rung.delivery_event d WHERE kafka_offset = 1) x"
    )


def counted_wrong(traces: Traces) -> None:
    """The journal tells another depth of the resolution."""
    traces.sql("UPDATE rung.delivery_event SET depth = 9 WHERE type = 'rung.notification.resolved'")


IN_THE_TOPIC: dict[Rule, Callable[[Traces], None]] = {
    Rule.OPEN_OVERDUE: left_open,
    Rule.AFTER_STOP: after_stop,
    Rule.OTHER_KEY: other_key,
    Rule.KEY_FORM: key_form,
    Rule.ORDER: order,
    Rule.OUTBOX_UNANSWERED: unanswered,
    Rule.REPEATED_EVENT: repeated,
}
IN_THE_JOURNAL = [
    (Rule.JOURNAL_DIFFERS, not_in_the_journal),
    (Rule.JOURNAL_DIFFERS, made_up_in_the_journal),
    (Rule.COUNTERS, counted_wrong),
]


def test_a_real_history_is_clean(traces: Traces) -> None:
    """What the domain made and a real journal wrote keeps every promise, and all of it was looked at."""
    traces.write_journal()
    report = traces.audit()
    assert report.details == []
    assert report.clean
    events = len(traces.history)
    assert report.checked == {"events": events, "notifications": 3, "outbox_rows": 5, "journal_rows": events}
    assert (report.open, report.waiting, report.notes) == (1, 0, [])
    assert json.loads(report.json())["violations"] == dict.fromkeys(Rule, 0)


def test_the_auditors_role_suffices(traces: Traces) -> None:
    """A login that is only `rung_auditor` finds the same, and may change nothing."""
    traces.write_journal()
    url = traces.config.database_url
    url += ("&" if "?" in url else "?") + "options=-c%20role%3Drung_auditor"
    report = traces.audit(database_url=url)
    assert report.clean
    assert report.checked == traces.audit().checked
    with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("DELETE FROM rung.outbox")


@pytest.mark.parametrize("rule", IN_THE_TOPIC)
def test_a_broken_promise_is_found(traces: Traces, rule: Rule) -> None:
    """Each rule's violation, written into the real topic or outbox, is found by that rule and no other."""
    IN_THE_TOPIC[rule](traces)
    report = traces.audit()
    assert set(report.violations) == {rule}, report.details


@pytest.mark.parametrize(("rule", "seed"), IN_THE_JOURNAL)
def test_a_journal_that_is_not_the_topic_is_found(traces: Traces, rule: Rule, seed: Callable[[Traces], None]) -> None:
    """A row that is gone, one that was made up, and one that says something else."""
    traces.write_journal()
    assert traces.audit().clean
    seed(traces)
    report = traces.audit()
    assert rule in report.violations, report.details
    assert set(report.violations) <= {Rule.JOURNAL_DIFFERS, Rule.COUNTERS}


def test_a_journal_that_is_behind_is_no_violation(traces: Traces) -> None:
    """It is compared up to where it is, and the report says how far that is."""
    report = traces.audit()
    assert report.clean
    assert report.notes == [f"the journal is {len(traces.history)} offsets behind the topic; these were not compared"]


def test_a_request_set_aside_is_answered(traces: Traces) -> None:
    """By the relay in outbox_dead, or by the processor as a dead letter: it has a reason, and is not lost."""
    traces.request("too-large")
    traces.request("poison")
    traces.published()
    [(row,), (seq,)] = traces.sql(
        "SELECT id::text FROM rung.outbox WHERE payload ->> 'dedup_key' = 'too-large' "
        "UNION ALL SELECT seq::text FROM rung.outbox WHERE payload ->> 'dedup_key' = 'poison'"
    )
    assert traces.audit().violations == {Rule.OUTBOX_UNANSWERED: 2}
    traces.sql(
        "INSERT INTO rung.outbox_dead SELECT seq, id, aggregatetype, aggregateid, type, payload, xid, bucket, "
        "created_at, 'too_large', 'x' FROM rung.outbox WHERE seq = %s",
        int(seq),
    )
    letter = DeadLetter(DeadReason.TOO_LARGE, "x", "notifications", 0, 0, "processor", now_ms())
    headers = letter.headers(to_headers(Envelope(row, "rung.notify", "/rung/outbox", now_ms())))
    bootstrap = traces.journal.kafka["bootstrap.servers"]
    produce(bootstrap, traces.config.naming(DEAD_LETTERS), [(ADA, b"{}", dict(headers))])
    assert traces.audit().clean


def test_a_request_that_nobody_has_seen_may_wait(traces: Traces) -> None:
    """While relay or processor are away, it waits, and is a violation only when its time is over."""
    traces.sql("UPDATE rung.outbox_cursor SET seen = '1:1:'")
    traces.request("waits")
    found: list[Violation] = []
    with Auditor(replace(traces.config, settle_seconds=3600.0), found.extend) as auditor:
        for _ in range(3):
            auditor.round()
        assert (found, auditor.waiting) == ([], 1)
    assert "not published after" in traces.audit(settle_seconds=0.5).details[0].detail


def test_a_request_that_everybody_has_passed_is_judged_at_once(traces: Traces) -> None:
    """Published by the relay's word, and the processor has committed beyond it: there is nothing left to wait for."""
    bootstrap, naming = traces.journal.kafka["bootstrap.servers"], traces.config.naming
    create_topics(bootstrap, {naming(NOTIFICATIONS): 1})
    produce(bootstrap, naming(NOTIFICATIONS), [(ADA, b"{}"), (ADA, b"{}")])
    unanswered(traces)

    found: list[Violation] = []
    with Auditor(replace(traces.config, settle_seconds=3600.0), found.extend) as auditor:
        for offset in (None, 1):
            if offset is not None:
                processed_up_to(traces, offset)
            for _ in range(3):
                auditor.round()
        assert (found, auditor.waiting) == ([], 1)
        processed_up_to(traces, 2)
        auditor.round()
        auditor.round()
    assert [v.rule for v in found] == [Rule.OUTBOX_UNANSWERED]
    assert "passed by the processor" in found[0].detail


def test_the_marker_of_a_transaction_is_no_request(traces: Traces) -> None:
    """A redrive writes in transactions: the last place of its partition is one that no reader ever passes."""
    bootstrap, naming = traces.journal.kafka["bootstrap.servers"], traces.config.naming
    create_topics(bootstrap, {naming(NOTIFICATIONS): 1})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": naming.prefix + "redrive"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(naming(NOTIFICATIONS), b"{}", ADA)
    producer.commit_transaction(20)
    unanswered(traces)
    found: list[Violation] = []
    with Auditor(replace(traces.config, settle_seconds=3600.0), found.extend) as auditor:
        processed_up_to(traces, 0)
        for _ in range(3):
            auditor.round()
        assert (found, auditor.waiting) == ([], 1)
        processed_up_to(traces, 1)
        auditor.round()
        auditor.round()
    assert [v.rule for v in found] == [Rule.OUTBOX_UNANSWERED]


def processed_up_to(traces: Traces, offset: int) -> None:
    """What the processor commits."""
    bootstrap, naming = traces.journal.kafka["bootstrap.servers"], traces.config.naming
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": naming.prefix + "rung-processor"})
    consumer.commit(offsets=[TopicPartition(naming(NOTIFICATIONS), 0, offset)], asynchronous=False)
    consumer.close()


def test_a_part_can_be_audited(traces: Traces) -> None:
    """From a moment on: what was before is not held against anybody, what is after is."""
    after_stop(traces)
    traces.write_journal()
    since = now_ms()
    assert traces.audit(since=since).clean
    traces.emit(accepted("new", now_ms(), now_ms()), claimed("new", now_ms(), "odd"))
    report = traces.audit(since=since)
    assert set(report.violations) == {Rule.KEY_FORM}
    assert report.checked["events"] == 2


def test_each_violation_is_counted_once(traces: Traces) -> None:
    """Running on, the audit starts at zero for every rule, reads only what is new, counts each violation once, and sees
    what was written while it ran."""
    registry, stop = CollectorRegistry(), threading.Event()
    ready: list[bool] = []
    config = replace(traces.config, interval_seconds=0.1, ready=ready.append)

    def counted() -> dict[Rule, float]:
        name = "rung_audit_violations_total"
        return {rule: registry.get_sample_value(name, {"rule": rule.value}) or 0.0 for rule in Rule}

    def checked(what: str) -> float:
        return registry.get_sample_value("rung_audit_checked_total", {"what": what}) or 0.0

    audit = threading.Thread(target=run, args=(config, stop, registry))
    with running(traces.journal):
        audit.start()
        try:
            whole = len(traces.history)
            eventually(lambda: checked("journal_rows") == whole, timeout=30)
            assert counted() == dict.fromkeys(Rule, 0.0)
            eventually(lambda: ready[-1:] == [True])
            traces.request("other-depth")
            for seed in IN_THE_TOPIC.values():
                seed(traces)
            traces.emit(changed(traces.history[-1], event_id="no uuid at all", at=now_ms()))
            eventually(
                lambda: all(counted()[rule] >= 1 for rule in IN_THE_TOPIC), timeout=30, describe=lambda: str(counted())
            )
            eventually(lambda: traces.journalled() and checked("journal_rows") >= traces.emitted - 2, timeout=30)
            before, events = counted(), checked("events")
            assert events == traces.emitted
            age = "rung_audit_last_run_age_seconds"
            for _ in range(3):
                eventually(lambda: (registry.get_sample_value(age) or 0) > 0.05)
                eventually(lambda: (registry.get_sample_value(age) or 1) < 0.05)
            assert counted() == before
            assert checked("events") == events
        finally:
            stop.set()
            audit.join(20)
    assert not audit.is_alive()


def test_the_services_counters_are_held_against_the_recount(traces: Traces) -> None:
    """A journal's own metrics equal the recount; one that counts a cancelled step too many does not."""
    registry = CollectorRegistry()
    with running(traces.journal, registry):
        eventually(traces.journalled, timeout=30)
        server, thread = start_http_server(0, "127.0.0.1", registry)
        try:
            address = f"http://127.0.0.1:{server.server_port}/metrics"
            report = traces.audit(metrics=(address,))
            assert (report.details, report.notes) == ([], [])
            collector = registry._names_to_collectors["rung_cancelled_steps"]
            collector.labels("payment").inc()  # type: ignore[attr-defined]
            report = traces.audit(metrics=(address,))
            assert [v.rule for v in report.details] == [Rule.COUNTERS]
            assert "cancelled steps" in report.details[0].detail
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)
