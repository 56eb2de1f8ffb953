"""The system from outside: what a service asks for, what the providers receive, what the event stream says."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from schemas.envelope import Envelope, to_headers
from schemas.ids import notification_id
from tests.support.kafka import produce
from tests.support.world import World


def test_three_steps_are_climbed_in_order(world: World, who: str) -> None:
    """Nobody acts: push, chat, e-mail, each at its time and never before it, with the step's own key."""
    world.put(who)
    identity = world.notify(who)
    world.wait_for(who, "notification.finished")
    calls = world.calls(who)
    assert [call["channel"] for call in calls] == ["push", "chat", "email"]
    assert [call["key"] for call in calls] == [f"{identity}:{step}" for step in range(3)]
    plan = world.events(who, "notification.accepted")[0]["steps"]
    for call, step in zip(calls, plan, strict=True):
        assert 0 <= call["at"] - step["due_at"] < 3_000


@pytest.mark.parametrize("steps", [1, 2])
def test_a_resolution_stops_the_ladder(world: World, who: str, steps: int) -> None:
    """Acted on after step 1, or after step 2: nothing is sent any more, each remaining step is suppressed by name."""
    world.put(who)
    world.notify(who)
    world.wait_for(who, "step.sent", count=steps)
    world.resolve(who)
    resolved = world.wait_for(who, "notification.resolved")[0]
    assert resolved["depth"] == steps
    suppressed = world.wait_for(who, "step.suppressed", count=3 - steps)
    assert {event["reason"] for event in suppressed} == {"resolved"}
    # A later ladder of the same person runs past the times of the suppressed steps: by then they would have come.
    world.notify(who, key="k2", number=2)
    world.wait_for(who, "notification.finished", key="k2")
    assert len(world.calls(who)) == steps + 3
    told = [event["step_no"] for event in world.events(who, "step.suppressed", key="k1")]
    assert sorted(told) == list(range(steps, 3)), "each remaining step once"


def test_a_resolution_before_its_notification_wins(world: World, who: str) -> None:
    """The resolution is committed first, by a moment: whichever of the two topics is read first, all three steps are
    suppressed and nobody is called."""
    world.put(who)
    world.resolve(who)
    world.notify(who)
    world.wait_for(who, "step.suppressed", count=3)
    assert world.wait_for(who, "notification.resolved")[0]["depth"] == 0
    assert world.calls(who) == []


@pytest.mark.parametrize("order", ["before", "together", "after"])
def test_a_resolution_around_the_acceptance_ends_the_same(world: World, who: str, order: str) -> None:
    """In one transaction with its notification, before it in the same transaction, or as soon as it is committed:
    resolved; no step but the first may have left, and every other one is suppressed once."""
    world.put(who)
    with psycopg.connect(world.where["database_url"]) as connection:
        resolve = ("SELECT rung.resolve(%s, 'k1', 'done')", (who,))
        if order == "before":
            connection.execute(*resolve)
        connection.execute("SELECT rung.notify(%s, 'payment', '{\"number\": 1}', 'k1')", (who,))
        if order == "together":
            connection.execute(*resolve)
        connection.commit()
        if order == "after":
            connection.execute(*resolve)
    world.wait_for(who, "notification.resolved")
    # A later ladder runs past the times of the suppressed steps: by then they would have come.
    world.notify(who, key="k2", number=2)
    world.wait_for(who, "notification.finished", key="k2")
    sent = [event["step_no"] for event in world.events(who, "step.sent", key="k1")]
    suppressed = sorted(event["step_no"] for event in world.events(who, "step.suppressed", key="k1"))
    assert (sent, suppressed) in [([], [0, 1, 2]), ([0], [1, 2])]
    assert len(world.calls(who)) == len(sent) + 3
    assert len(world.events(who, "notification.resolved")) == 1


def test_a_refused_request_leaves_no_trace_of_its_key(world: World, who: str) -> None:
    """Bad requests by SQL, by HTTP and in the topic itself, all with one key: the corrected one is accepted and sent,
    the same again is its duplicate, and another body is a conflict."""
    world.put(who)
    with pytest.raises(psycopg.Error, match="kind"):
        world.notify(who, kind="no-such-kind")
    asked = {"recipient": who, "dedup_key": "k1", "data": {"number": 1}}
    for wrong in ({"kind": "no-such-kind"}, {"kind": "slow", "data": 5}, {"kind": "slow", "expires_at": "soon"}):
        assert _post(world, {**asked, **wrong}) == 422
    identity = str(notification_id(who, "k1"))
    payload = {**asked, "notification_id": identity, "kind": "slow"}
    bad = [json.dumps({**payload, **wrong}).encode() for wrong in ({"kind": "no-such-kind"}, {"data": 5})]
    rows = [(who, value, _headers(number)) for number, value in enumerate([*bad, json.dumps(payload).encode()[:-1]])]
    produce(world.where["kafka"], "notifications", rows)
    assert world.notify(who, kind="slow") == identity
    world.wait_for(who, "step.sent")
    assert _post(world, {**asked, "kind": "slow"}) in (200, 202)
    world.wait_for(who, "notification.duplicate")
    assert _post(world, {**asked, "kind": "slow", "data": {"number": 2}}) in (200, 202)
    world.wait_for(who, "notification.conflict")
    assert len(world.events(who, "notification.accepted")) == 1
    assert len(world.calls(who)) == 1


def _headers(number: int) -> dict[str, str | bytes]:
    return dict(to_headers(Envelope(str(uuid.uuid4()), "rung.notify", "/test", round(time.time() * 1000) + number)))


def _post(world: World, body: dict[str, Any]) -> int:
    """The status of a request for a notification over HTTP."""
    request = urllib.request.Request(
        f"{world.where['api']}/v1/notifications", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_one_ladder_per_dedup_key(world: World, who: str) -> None:
    """The same again is a duplicate, another body a conflict; the first one goes out, once."""
    world.put(who)
    world.notify(who, kind="slow", number=1)
    world.notify(who, kind="slow", number=1)
    world.notify(who, kind="slow", number=2)
    world.wait_for(who, "notification.duplicate")
    world.wait_for(who, "notification.conflict")
    world.wait_for(who, "step.sent")
    assert len(world.events(who, "notification.accepted")) == 1
    assert len(world.calls(who)) == 1


def test_a_rejection_promotes_the_next_step_and_kills_the_contact(world: World, who: str) -> None:
    """The token is gone: chat follows at once, and the next ladder does not try push at all."""
    world.put(who)
    world.script(who, "push", [{"status": 410}], repeat=True)
    world.notify(who)
    world.wait_for(who, "step.promoted")
    first = world.wait_for(who, "step.sent")[0]
    assert first["channel"] == "chat"
    push, chat = world.calls(who)[:2]
    assert chat["at"] - push["at"] < 2_500, "well before its own time, three seconds after acceptance"
    world.notify(who, key="k2", number=2)
    skipped = world.wait_for(who, "step.suppressed", key="k2")[0]
    assert (skipped["channel"], skipped["reason"]) == ("push", "contact_dead")
    world.wait_for(who, "step.sent", key="k2")
    assert world.channels_called(who).count("push") == 1


def test_two_failures_then_sent_with_one_key(world: World, who: str) -> None:
    """503 twice: the third attempt is taken, and all three presented the same key."""
    world.put(who)
    world.script(who, "push", [{"status": 503}, {"status": 503}])
    world.notify(who, kind="slow")
    sent = world.wait_for(who, "step.sent")[0]
    assert sent["attempt"] == 3
    assert [call["status"] for call in world.calls(who)] == [503, 503, 200]
    assert len({call["key"] for call in world.calls(who)}) == 1
    assert len(world.events(who, "step.failed")) == 2


def test_a_time_out_after_acceptance_is_not_a_second_message(world: World, who: str) -> None:
    """The provider took it and fell silent: the next attempt has the same key, and the provider accepts only one."""
    world.put(who)
    world.script(who, "push", [{"hang_ms": 3_000}])
    world.notify(who, kind="slow")
    world.wait_for(who, "step.unknown")
    world.wait_for(who, "step.sent")
    assert [(call["accepted"], call["repeat"]) for call in world.calls(who)] == [(True, False), (False, True)]


def test_retry_after_is_kept(world: World, who: str) -> None:
    """429 with Retry-After: no call before that time."""
    world.put(who)
    world.script(who, "push", [{"status": 429, "retry_after": "2"}])
    world.notify(who, kind="slow")
    world.wait_for(who, "step.sent")
    first, second = world.calls(who)
    assert second["at"] - first["at"] >= 2_000


def test_expiry_ends_a_ladder_whatever_attempts_remain(world: World, who: str) -> None:
    """It is worthless after two seconds: the retry and the later step are suppressed."""
    world.put(who)
    world.script(who, "push", [{"status": 429, "retry_after": "3"}])
    world.script(who, "email", [{"status": 451}], repeat=True)
    world.notify(who, kind="brief")
    world.wait_for(who, "notification.expired")
    assert world.wait_for(who, "step.suppressed")[0]["reason"] == "expired"
    assert world.events(who, "step.sent") == []


@pytest.mark.timeout(180)
def test_quiet_hours_move_a_step_to_their_end(world: World, who: str) -> None:
    """It is quiet until the next full minute: the message comes then, not before, and is not dropped."""
    now = datetime.now(UTC)
    until = (now + timedelta(seconds=65)).replace(second=0, microsecond=0)
    quiet = {"from": (now - timedelta(hours=1)).strftime("%H:%M"), "until": until.strftime("%H:%M")}
    world.put(who, quiet_hours=quiet, time_zone="UTC")
    world.notify(who, kind="slow")
    deferred = world.wait_for(who, "step.deferred")[0]
    assert (deferred["reason"], deferred["next_due_at"]) == ("quiet_hours", round(until.timestamp() * 1000))
    world.wait_for(who, "step.sent", timeout=90)
    assert world.calls(who)[0]["at"] >= until.timestamp() * 1000


def test_consent_withdrawn_between_steps(world: World, who: str) -> None:
    """Looked at when each step is due: push went out, chat and e-mail do not."""
    world.put(who)
    world.notify(who)
    world.wait_for(who, "step.sent")
    world.put(who, consent={"payment": False})
    suppressed = world.wait_for(who, "step.suppressed", count=2)
    assert [event["reason"] for event in suppressed] == ["consent_withdrawn"] * 2
    assert world.channels_called(who) == ["push"]


def test_an_erased_recipient_is_left_alone(world: World, who: str) -> None:
    """Everything pending stops; a later request finds no way to the person."""
    world.put(who)
    world.notify(who)
    world.wait_for(who, "step.sent")
    world.erase(who)
    world.wait_for(who, "notification.erased")
    world.notify(who, key="k2", number=2)
    world.wait_for(who, "notification.dead", key="k2")
    assert world.channels_called(who) == ["push"]


def test_a_rolled_back_request_leaves_no_trace(world: World, who: str) -> None:
    """The service's transaction fails: no event, no call; the one that follows is delivered."""
    world.put(who)
    with psycopg.connect(world.where["database_url"]) as connection:
        connection.execute("SELECT rung.notify(%s, 'slow', '{\"number\": 1}', 'lost')", (who,))
        connection.rollback()
    world.notify(who, kind="slow", key="kept")
    world.wait_for(who, "step.sent", key="kept")
    assert {event["dedup_key"] for event in world.events(who)} == {"kept"}


def test_an_unknown_kind_is_refused_at_the_door(world: World, who: str) -> None:
    """An SQL error that names the argument; the key is not used up."""
    with pytest.raises(psycopg.Error, match="kind"):
        world.notify(who, kind="no-such-kind")
    world.put(who)
    world.notify(who, kind="slow")
    world.wait_for(who, "step.sent")


def test_every_event_is_told_once(world: World, who: str) -> None:
    """Readers may drop repeats by id: over everything that this run's topic holds so far, there are none."""
    world.put(who)
    world.notify(who, kind="slow")
    world.wait_for(who, "step.sent")
    ids = [event["id"] for events in list(world._events.values()) for event in events]
    assert len(ids) == len(set(ids))
