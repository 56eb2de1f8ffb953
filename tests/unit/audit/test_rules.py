"""Each rule finds what it is for in a corrupted history, and nothing in any history that the domain makes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from relay.audit.book import Fact
from relay.audit.ledger import Standing
from relay.audit.rules import (
    KindCount,
    Rule,
    Stored,
    Violation,
    counters,
    journal_differs,
    open_overdue,
    outbox_unanswered,
    unnamed_after_stop,
)
from relay.audit.topic import storable
from schemas.profile import Profile, QuietHours
from schemas.records import EventType, OutcomeKind, UnknownPolicy
from schemas.state import Ladder, LadderStep, RetryPolicy
from schemas.topics import CLAIM_DEADLINE_MS, CLAIM_GRACE_MS, DAY_MS
from tests.support.audit import PUSH, at, audited, changed, facts, renumbered, story
from tests.support.recipient import MINUTE, REACHABLE, Player, identity, key_of, ladder

CHANNELS = ["push", "chat", "email"]


def rules_of(violations: list[Violation]) -> list[Rule]:
    """Which rules were violated, in order."""
    return [violation.rule for violation in violations]


@pytest.fixture
def history() -> list[Fact]:
    """A real history."""
    return facts(story(Player()))


def test_a_real_history_is_clean(history: list[Fact]) -> None:
    """Retry, rejection, a call in flight at the stop, duplicate and conflict: nothing to find."""
    found, book = audited(history)
    assert found == []
    assert list(unnamed_after_stop(book, history[-1].event.at, 0)) == []
    assert list(open_overdue(book, history[-1].event.at, 0)) == []
    assert {f.type for f in history} >= {EventType.TOO_LATE, EventType.DUPLICATE, EventType.CONFLICT}


def test_a_claim_after_the_stop_is_found(history: list[Fact]) -> None:
    """A claim that stands behind the resolution of its notification."""
    claim = history[at(history, EventType.STEP_CLAIMED)]
    late = changed(claim, event_id="late")
    found, _ = audited(renumbered([*history, late]))
    assert [(v.rule, v.notification_id) for v in found] == [(Rule.AFTER_STOP, str(identity("k1")))]


def test_a_claim_of_nothing_known_is_found_where_all_was_read(history: list[Fact]) -> None:
    """Of a topic that is read from its first event on; of one whose beginning is gone it may be an older one's."""
    claim = history[at(history, EventType.STEP_CLAIMED)]
    assert rules_of(audited([claim])[0]) == [Rule.AFTER_STOP]
    assert audited([claim], whole=False)[0] == []


def test_what_was_in_flight_must_be_named(history: list[Fact]) -> None:
    """Without its `too_late` event, a message sent after the stop is a violation, told once."""
    del history[at(history, EventType.TOO_LATE)]
    found, book = audited(renumbered(history))
    assert found == []
    end = history[-1].event.at
    assert list(unnamed_after_stop(book, end - MINUTE, 0)) == [], "the two may still be read one after the other"
    assert rules_of(list(unnamed_after_stop(book, end, 0))) == [Rule.AFTER_STOP]
    assert list(unnamed_after_stop(book, end, 0)) == []


def test_another_key_is_found(history: list[Fact]) -> None:
    """The second attempt at a step under the key of another id: well formed, and not the same."""
    second = at(history, EventType.STEP_CLAIMED, 1)
    history[second] = changed(history[second], notification_id=identity("other"), key=key_of("other", 0))
    found, _ = audited(history)
    assert rules_of(found)[0] is Rule.OTHER_KEY
    assert set(rules_of(found)) == {Rule.OTHER_KEY}


@pytest.mark.parametrize("key", [None, "", f"{identity('k3')}:0:1", f"{identity('k3')}:1", "k3"])
def test_a_key_of_another_form_is_found(history: list[Fact], key: str | None) -> None:
    """No key, one with the attempt's number, another step's, another form."""
    where = at(history, EventType.STEP_CLAIMED, -1)
    history[where] = changed(history[where], key=key)
    assert Rule.KEY_FORM in rules_of(audited(history)[0])


def test_an_overtaking_first_attempt_is_found() -> None:
    """Two notifications are due together after quiet hours, and the later one starts first."""
    player = Player()
    player.put(REACHABLE)
    first, second = ladder(("chat", 5)), ladder(("chat", 5))
    player.notify("k1", first)
    player.notify("k2", second)
    player.wait(6)
    history = facts(player)
    assert audited(history)[0] == []
    one, two = at(history, EventType.STEP_CLAIMED, 0), at(history, EventType.STEP_CLAIMED, 1)
    history[one], history[two] = history[two], history[one]
    found, _ = audited(renumbered(history))
    assert [(v.rule, v.notification_id) for v in found] == [(Rule.ORDER, str(identity("k2")))]
    assert str(identity("k1")) in found[0].detail


def test_what_may_overtake_is_no_violation() -> None:
    """A retry is overtaken by a first attempt, and a strict step that waits by a kind that is not strict."""
    player = Player()
    player.put(REACHABLE)
    player.notify("k1", PUSH)
    player.answer(player.deliveries[-1], OutcomeKind.FAILED)
    player.notify("k2", ladder(("push", 0), ordering="strict"))
    player.notify("k3", PUSH)
    player.wait(1)
    history = facts(player)
    assert EventType.STEP_DEFERRED in {f.type for f in history}
    assert audited(history)[0] == []


@pytest.mark.parametrize(
    "kind", [EventType.ACCEPTED, EventType.STEP_CLAIMED, EventType.STEP_SENT, EventType.RESOLVED, EventType.CONFLICT]
)
def test_an_event_twice_is_found(history: list[Fact], kind: EventType) -> None:
    """The same event once more, right behind itself."""
    where = at(history, kind)
    history.insert(where, history[where])
    assert Rule.REPEATED_EVENT in rules_of(audited(renumbered(history))[0])


def test_what_was_decided_again_later_is_found(history: list[Fact]) -> None:
    """A claim decided a second time has another time and the same id."""
    where = at(history, EventType.STEP_CLAIMED)
    history.insert(where + 1, changed(history[where], at=history[where].event.at + 5))
    assert Rule.REPEATED_EVENT in rules_of(audited(renumbered(history))[0])


def test_ids_that_come_again_by_right() -> None:
    """A refused request twice, a receipt twice, and a key used anew after its retention."""
    player = Player()
    for _ in range(2):
        player.notify("odd", None, ce_id="refused")
        player.notify("k1", PUSH)
        player.wait(8 * 24 * 60)
    player.put(REACHABLE)
    player.notify("k2", PUSH)
    claim = player.deliveries[-1]
    player.answer(claim, OutcomeKind.SENT)
    for _ in range(2):
        player.answer(claim, OutcomeKind.DELIVERED)
        player.wait(1)
    history = facts(player)
    ids = Counter((f.type, f.event_id) for f in history)
    assert {kind for (kind, _), number in ids.items() if number > 1} >= {
        EventType.ACCEPTED,
        EventType.DEAD,
        EventType.STEP_DELIVERED,
    }
    assert audited(history)[0] == []


def test_what_is_overdue_is_found_once() -> None:
    """A pending step, a claim without an outcome, an expiry: each after its grace and not before; told once."""
    late = CLAIM_DEADLINE_MS + CLAIM_GRACE_MS + 1_000
    player = Player()
    player.put(REACHABLE)
    player.notify("k1")
    _, book = audited(facts(player))
    claimed_at = player.now
    assert list(open_overdue(book, claimed_at + late, 1_000)) == []
    assert rules_of(list(open_overdue(book, claimed_at + late + 1, 1_000))) == [Rule.OPEN_OVERDUE]
    assert list(open_overdue(book, claimed_at + late + 1, 1_000)) == []
    player.answer(player.deliveries[-1], OutcomeKind.SENT)
    _, book = audited(facts(player))
    due_at = player.notification("k1").steps[1].due_at
    assert list(open_overdue(book, due_at + late, 1_000)) == []
    [found] = open_overdue(book, due_at + late + 1, 1_000)
    assert found.notification_id == str(identity("k1"))
    assert str(due_at) in found.detail


def test_a_lost_end_is_found() -> None:
    """All steps are concluded and no end was recorded."""
    player = Player()
    player.put(REACHABLE)
    player.notify("k1", PUSH)
    player.answer(player.deliveries[-1], OutcomeKind.SENT)
    history = facts(player)
    del history[at(history, EventType.FINISHED)]
    _, book = audited(history)
    assert rules_of(list(open_overdue(book, player.now + MINUTE, 0))) == [Rule.OPEN_OVERDUE]


def standing(**fields: Any) -> Standing:
    """A published row that has waited for ten seconds."""
    given = {"seq": 7, "notification_id": "n", "created_at": 1, "waited_ms": 10_000, "published": True}
    return Standing(**(given | {"passed": False, "set_aside": False} | fields))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"passed": True}, "published, passed by the processor and not answered"),
        ({"waited_ms": 60_000}, "published, not processed and not answered"),
        ({"waited_ms": 60_000, "published": False}, "not published"),
    ],
)
def test_an_unanswered_row_is_found(fields: dict[str, Any], why: str) -> None:
    """At once where relay and processor say that they are done with it, and else after its time."""
    [found] = outbox_unanswered([standing(**fields)], 60_000)
    assert (found.rule, found.notification_id) == (Rule.OUTBOX_UNANSWERED, "n")
    assert why in found.detail


@pytest.mark.parametrize(
    "fields", [{}, {"published": False}, {"passed": True, "set_aside": True}, {"waited_ms": 59_999}]
)
def test_a_row_that_may_wait_is_no_violation(fields: dict[str, Any]) -> None:
    """Neither is one that was set aside by name."""
    assert list(outbox_unanswered([standing(**fields)], 60_000)) == []


def test_other_counters_are_found() -> None:
    """Another number of concluded or cancelled steps, or another depth; depths with one sum are told apart if they can
    be."""
    mine = {"payment": KindCount(5, 2, Counter({1: 2}))}
    assert list(counters(mine, {"payment": KindCount(5, 2, Counter({1: 2}))}, "x")) == []
    for theirs in (
        KindCount(6, 2, Counter({1: 2})),
        KindCount(5, 1, Counter({1: 2})),
        KindCount(5, 2, Counter({1: 3})),
    ):
        assert set(rules_of(list(counters(mine, {"payment": theirs}, "x")))) == {Rule.COUNTERS}
    spread = {"payment": KindCount(5, 2, Counter({0: 1, 2: 1}))}
    assert rules_of(list(counters(mine, spread, "x"))) == [Rule.COUNTERS]
    assert list(counters(mine, spread, "x", exact_depths=False)) == []
    assert rules_of(list(counters({}, {"other": KindCount(1)}, "x"))) == [Rule.COUNTERS]


def stored(offset: int, event_id: str = "", at_: int = 0, type_: str = "t") -> Stored:
    """An event in a place."""
    return Stored(0, offset, event_id or f"e{offset}", at_, type_, f"n{offset}")


WHOLE = [stored(n) for n in (0, 1, 3, 4, 7)]


@pytest.mark.parametrize(
    ("rows", "missing", "extra"),
    [
        (WHOLE, 0, 0),
        (WHOLE[1:], 1, 0),
        (WHOLE[:-1], 1, 0),
        ([], 5, 0),
        ([*WHOLE, stored(9)], 0, 1),
        ([WHOLE[0], stored(0, "other"), *WHOLE[1:]], 0, 1),
        ([WHOLE[0], WHOLE[1], stored(2), *WHOLE[2:]], 0, 1),
        ([WHOLE[0], stored(1, at_=5), *WHOLE[2:]], 1, 1),
        ([WHOLE[0], stored(1, type_="other"), *WHOLE[2:]], 1, 1),
    ],
)
def test_a_journal_that_differs_is_found(rows: list[Stored], missing: int, extra: int) -> None:
    """Rows missing at the beginning, the end, everywhere; rows too many, in a gap, beside another one, changed ones."""
    found = [v.detail for v in journal_differs(WHOLE, rows, lambda _: False)]
    assert sum("is missing" in detail for detail in found) == missing
    assert sum("is no event of the topic" in detail for detail in found) == extra
    assert len(found) == missing + extra


def test_a_repeat_in_the_topic_is_not_missing_in_the_journal() -> None:
    """The journal holds it under its first offset."""
    assert list(journal_differs([*WHOLE, stored(8, "e0")], WHOLE, lambda e: e.event_id == "e0")) == []


LADDERS = st.builds(
    lambda kind, steps, **options: Ladder(
        kind=kind,
        steps=tuple(LadderStep(channel=c, after_ms=a, template="t") for c, a in sorted(steps, key=lambda s: s[1])),
        expires_after_ms=3 * 60 * MINUTE,
        **options,
    ),
    st.sampled_from(["payment", "welcome"]),
    st.lists(st.tuples(st.sampled_from(CHANNELS), st.integers(0, 90 * MINUTE)), min_size=1, max_size=3),
    stop_on=st.sampled_from(["resolution", "sent", "delivered"]),
    quiet_hours=st.sampled_from(["shift", "ignore"]),
    ordering=st.sampled_from(["first-attempt", "strict"]),
    retry=st.builds(RetryPolicy, max_attempts=st.integers(1, 3)),
)
PROFILES = st.builds(
    Profile,
    addresses=st.fixed_dictionaries({}, optional={c: st.sampled_from(["a1", "a2"]) for c in CHANNELS}),
    quiet_hours=st.none() | st.builds(QuietHours, from_=st.just("14:00"), until=st.sampled_from(["15:30", "13:00"])),
    preferences=st.sampled_from([{}, {"payment": {"push": False}}]),
    consent=st.sampled_from([{}, {"payment": False}]),
)
KEYS = st.sampled_from(["k1", "k2", "k3", "k4"])
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("notify"), KEYS, LADDERS, st.sampled_from([{}, {"n": 1}])),
        st.tuples(st.just("resolve"), KEYS),
        st.tuples(st.just("put"), PROFILES),
        st.tuples(st.just("erase")),
        st.tuples(
            st.just("answer"),
            st.integers(0, 3),
            st.sampled_from(OutcomeKind),
            st.sampled_from(UnknownPolicy),
        ),
        st.tuples(st.just("wait"), st.sampled_from([0.01, 0.6, 2, 11, 60, 600])),
    ),
    max_size=30,
)


@settings(max_examples=150)
@given(ACTS)
def test_no_history_of_the_domain_has_a_violation(acts: list[tuple[Any, ...]]) -> None:
    """Any requests, answers, resolutions, profiles and waits: what the domain emits keeps every rule, and with its
    wake-ups in time nothing is overdue."""
    player = Player()
    player.put(REACHABLE)
    for act, *given_ in acts:
        match act:
            case "notify":
                player.notify(given_[0], given_[1], data=given_[2])
            case "resolve":
                player.resolve(*given_)
            case "put":
                player.put(*given_)
            case "erase":
                player.erase()
            case "wait":
                player.wait(*given_)
            case _ if player.deliveries:
                claim = player.deliveries[-1 - given_[0] % len(player.deliveries)]
                reason = "resolved" if given_[1] is OutcomeKind.SUPPRESSED else "code"
                player.answer(claim, given_[1], unknown_policy=given_[2], reason=reason)
    found, book = audited(facts(player))
    assert found == []
    assert list(unnamed_after_stop(book, player.now, 0)) == []
    # A worker's `suppressed: resolved` is followed by the resolution, which these histories may leave out.
    if not any(f.event.detail == "before_call" for f in facts(player)):
        assert list(open_overdue(book, player.now, 0)) == []


def test_what_ended_long_ago_is_forgotten() -> None:
    """Memory is bounded by what is open and what ended lately."""
    player = Player()
    player.put(REACHABLE)
    for number in range(20):
        player.notify(f"k{number}", PUSH)
        player.answer(player.deliveries[-1], OutcomeKind.SENT)
        player.wait(DAY_MS / MINUTE / 4)
    _, book = audited(facts(player))
    assert book.begun == 20
    assert len(book) <= 6


@pytest.mark.parametrize(
    ("change", "value", "held"),
    [
        ({}, b"{}", True),
        ({"attempt": 2**31 - 1}, b"{}", True),
        ({"attempt": 2**31}, b"{}", False),
        ({"depth": 10**12}, b"{}", False),
        ({"step_no": -(2**31) - 1}, b"{}", False),
        ({}, b'{"detail":"\\u0000"}', False),
    ],
)
def test_what_the_journal_cannot_hold_is_not_missed(
    history: list[Fact], change: dict[str, Any], value: bytes, held: bool
) -> None:
    """It is a dead letter of the journal's, and no row."""
    assert storable(changed(history[0], **change), value) is held
    assert storable(None, None)
