"""Requests meet their answers, whatever comes first; what nobody answers is left."""

from __future__ import annotations

from itertools import count

import hypothesis.strategies as st
from hypothesis import given

from relay.audit.book import Fact
from relay.audit.ledger import CLOCKS_MS, Ledger, answers, digest
from schemas.records import EventType
from tests.support.audit import at, changed, facts, story
from tests.support.recipient import ADA, NOON, Player


def history() -> list[Fact]:
    """A real one."""
    return facts(story(Player()))


def test_the_events_of_a_history_answer_its_requests() -> None:
    """Accepted, duplicate, conflict and refused are answers, one for each request, and nothing else is."""
    player = story(Player())
    player.notify("odd", None)
    assert [f.event.dedup_key for f in facts(player) if answers(f)] == ["k1", "k2", "k2", "k2", "k3", "odd"]


def test_a_recipient_and_a_key_are_kept_apart() -> None:
    """ "a" with "bc" is another request than "ab" with "c"."""
    assert digest("a", "bc") != digest("ab", "c")


def test_two_requests_need_two_answers() -> None:
    """One answer settles the first of them, whichever it is."""
    ledger, [accepted] = Ledger(), [history()[at(history(), EventType.ACCEPTED)]]
    ledger.snapshot([(digest(ADA, "k1"), 1), (digest(ADA, "k1"), 2)], NOON)
    ledger.answer(accepted)
    assert [row.seq for row in ledger.waiting(NOON + 1)] == [2]
    assert list(ledger.waiting(NOON)) == []
    ledger.settle({2})
    assert len(ledger) == 0


def test_an_old_answer_is_none_for_a_new_request() -> None:
    """What was answered well before a snapshot had its row in it; a later request needs an answer of its own."""
    accepted = history()[at(history(), EventType.ACCEPTED)]
    ledger = Ledger()
    ledger.snapshot([], NOON)
    ledger.answer(changed(accepted, at=NOON - CLOCKS_MS - 1))
    ledger.answer(changed(accepted, at=NOON))
    ledger.snapshot([], NOON + CLOCKS_MS + 1)
    ledger.snapshot([(digest(ADA, "k1"), 1)], NOON + CLOCKS_MS + 2)
    assert len(ledger) == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40))
def test_any_interleaving_settles_the_answered(acts: list[tuple[str, bool]]) -> None:
    """Rows and answers of the last seconds in any order: as many wait as lack an answer."""
    accepted = history()[at(history(), EventType.ACCEPTED)]
    ledger, numbers, clock = Ledger(), count(), count(NOON)
    rows: dict[str, int] = dict.fromkeys("abc", 0)
    answered: dict[str, int] = dict.fromkeys("abc", 0)
    for key, is_row in acts:
        now = next(clock)
        if is_row:
            rows[key] += 1
            ledger.snapshot([(digest(ADA, key), next(numbers))], now)
        else:
            answered[key] += 1
            ledger.answer(changed(accepted, dedup_key=key, at=now))
    assert len(ledger) == sum(max(0, rows[k] - answered[k]) for k in "abc")
