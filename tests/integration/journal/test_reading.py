"""What people read from the journal: the same story that the domain's events tell, by id and by key, and totals."""

from __future__ import annotations

from uuid import UUID

import psycopg

from processor.domain.model import Emit
from relay.journal import query
from relay.journal.config import JournalConfig
from relay.journal.explain import explanation
from relay.journal.status import Happened
from relay.journal.totals import totals
from schemas.records import OutcomeKind
from schemas.state import RetryPolicy
from schemas.topics import DELIVERY_EVENTS
from tests.support.eventually import eventually
from tests.support.journal import event, now_ms, on_wire, running
from tests.support.kafka import produce
from tests.support.recipient import ADA, Player, identity, ladder


def story() -> Player:
    """Notifications of one person, now: one climbs to its second step and is resolved, one stays open, one was resolved
    before it came, and one died and was opened again."""
    player = Player(now=now_ms() - 3_600_000)
    player.put()
    player.notify("k1", data={"n": 1})
    player.answer(player.deliveries[-1], OutcomeKind.REJECTED, reason="http_404", provider="fcm")
    player.answer(player.deliveries[-1], OutcomeKind.SENT, provider="slack", provider_ref="m", latency_ms=12)
    player.notify("k1", data={"n": 2})
    player.resolve("k1")
    player.resolve("early")
    player.notify("k2")
    player.notify("early")
    once = ladder(("email", 0), retry=RetryPolicy(max_attempts=1))
    player.notify("again", using=once)
    player.answer(player.deliveries[-1], OutcomeKind.FAILED, reason="smtp_451", provider="mail")
    letter = player.set_aside[-1].notify
    assert letter is not None
    player.redrive(letter, using=once)
    return player


def test_the_story_survives_kafka_and_postgresql(kafka: str, config: JournalConfig) -> None:
    """Standing, explanation, lookup by key, the view and the totals agree with the events as they were emitted."""
    player, url = story(), config.database_url
    emitted = [c for c in player.commands if isinstance(c, Emit)]
    produce(kafka, config.naming(DELIVERY_EVENTS), [on_wire(c.event, c.type, c.event_id) for c in emitted])
    with running(config):
        eventually(lambda: (found := query.status(url, identity("again"))) is not None and found.status == "open")
        for key in ("k1", "k2", "early", "again"):
            told = [Happened(type=c.type, event=c.event) for c in emitted if c.event.dedup_key == key]
            assert query.explain(url, identity(key)) == explanation(told)
            assert query.find(url, ADA, key) == identity(key)
    first = query.status(url, identity("k1"))
    assert first is not None
    assert (first.status, first.resolution, first.depth, first.conflicts) == ("resolved", "paid", 1, 1)
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT dedup_key, status, resolution, depth, claims, steps_sent, steps_suppressed "
            "FROM rung.notification ORDER BY accepted_at, dedup_key"
        ).fetchall()
    assert rows == [
        ("again", "open", None, None, 2, 0, 0),
        ("early", "resolved", "paid", 0, 0, 0, 3),
        ("k1", "resolved", "paid", 1, 2, 1, 1),
        ("k2", "open", None, None, 1, 0, 1),
    ]
    [total] = totals(url)
    assert (total.kind, total.accepted, total.conflicts, total.promoted) == ("payment", 5, 1, 2)
    assert total.ended == {"resolved": 2, "dead": 1}
    assert total.depth == {0: 1, 1: 1}
    assert total.sent == {"chat": 1}
    assert total.steps == {"rejected": 1, "sent": 1, "suppressed": 5, "failed": 1}
    assert totals(url, since=now_ms()) == []


def test_one_id_for_two_people_tells_nobody_of_the_other(kafka: str, config: JournalConfig) -> None:
    """A service gave the id twice: by key each is found, and by the id the one who had it first."""
    one = event("ada", dedup_key="ada")
    other = event("eve", dedup_key="eve", notification_id=one.notification_id, at=one.at + 1)
    produce(kafka, config.naming(DELIVERY_EVENTS), [on_wire(one), on_wire(other)])
    url = config.database_url
    with running(config):
        eventually(lambda: query.find(url, "eve", "eve") is not None)
    assert query.find(url, "ada", "ada") == query.find(url, "eve", "eve") == one.notification_id
    for asked, told in (("ada", "ada"), ("eve", "eve"), (None, "ada")):
        found = query.explain(url, one.notification_id, asked)
        assert found is not None
        assert (found.status.recipient, found.status.dedup_key) == (told, told)
    assert query.explain(url, one.notification_id, "dan") is None


def test_what_is_not_there(journal_db: str) -> None:
    """Unknown ids and keys, also ones that PostgreSQL could not even compare, are None."""
    nobody = UUID(int=0)
    assert query.status(journal_db, nobody) is None
    assert query.explain(journal_db, nobody) is None
    assert query.find(journal_db, "ada", "k") is None
    assert query.find(journal_db, "a\0", "k") is None
