"""The crash suite's judge finds what it is there for: each fault, put into a run that is otherwise clean."""

from __future__ import annotations

from collections import defaultdict

from tests.support.chaos.ledger import BEHIND_MS, CALL_MS, IN_FLIGHT_MS, Call, Step, Verdict, judge
from tests.support.chaos.plan import AFTERS, Act, Ask
from tests.support.chaos.report import Fault, rows

START = 1_700_000_000_000


def asked(number: int, kind: str = "signature", settled_at: int | None = None) -> Ask:
    """An ask whose commit returned at the start."""
    act = Act.NEVER if settled_at is None else Act.BETWEEN
    ask = Ask(number, f"person-{number}", kind, act, START, None)
    ask.committed_at, ask.notification_id, ask.settled_at = START, f"n{number}", settled_at
    return ask


def called(ask: Ask) -> dict[Step, list[Call]]:
    """All calls of a ladder, each on time and accepted."""
    found: dict[Step, list[Call]] = defaultdict(list)
    for number, due in ask.due().items():
        channel = AFTERS[ask.kind][number][0]
        found[ask.notification_id, number].append(Call(f"{ask.notification_id}:{number}", channel, due + 100, True))
    return found


def verdict(
    ask: Ask, calls: dict[Step, list[Call]], stopped: int | None = None, kills: tuple[int, ...] = ()
) -> Verdict:
    """The judgement of one notification, whose stop was recorded at `stopped`."""
    return judge([ask], calls, {} if stopped is None else {ask.notification_id: stopped}, kills)


def test_a_clean_run_has_no_finding() -> None:
    """All steps called once: nothing to say."""
    for kind in AFTERS:
        ask = asked(1, kind)
        assert verdict(ask, called(ask)).findings == []


def test_a_step_without_a_call_is_lost() -> None:
    """Nobody acted, and a step was not called, or never accepted."""
    ask = asked(1)
    calls = called(ask)
    del calls["n1", 1]
    assert [f.kind for f in verdict(ask, calls).findings] == ["lost"]
    calls = called(ask)
    calls["n1", 1] = [Call("n1:1", "email", START + 3_100, accepted=False)]
    assert [f.kind for f in verdict(ask, calls).findings] == ["lost"]


def test_a_ladder_that_stops_on_sent_needs_one_accepted_call() -> None:
    """Which of its channels took it does not matter; none is a loss."""
    ask = asked(1, "shipped")
    by_mail: dict[Step, list[Call]] = {("n1", 1): [Call("n1:1", "email", START + 2_100, True)]}
    assert verdict(ask, by_mail).findings == []
    assert [f.kind for f in verdict(ask, {}).findings] == ["lost"]


def test_a_step_that_its_stop_overtook_is_not_lost() -> None:
    """The person acted before the step was due, or so soon after that it may have waited."""
    ask = asked(1, settled_at=START + 1_000)
    calls = called(ask)
    del calls["n1", 1]
    assert verdict(ask, calls, stopped=START + 1_050).findings == []


def test_a_step_that_was_due_long_before_its_stop_is_lost() -> None:
    """An act that comes much later does not excuse a step that was never called."""
    ask = asked(1, settled_at=START + 60_000)
    calls = called(ask)
    del calls["n1", 0]
    assert [f.kind for f in verdict(ask, calls, stopped=START + 60_050).findings] == ["lost"]


def test_calls_after_a_stop_by_how_late_they_are() -> None:
    """Before its record, in flight as it was recorded, and after: the last is a fault."""
    ask = asked(1, settled_at=START + 3_000)
    kinds = []
    for stopped in (START + 3_200, START + 3_050, START + 3_100 - IN_FLIGHT_MS - 1):
        kinds += [f.kind for f in verdict(ask, called(ask), stopped).findings]
    assert kinds == ["before_record", "in_flight", "after_stop"]


def test_a_repeat_needs_a_worker_that_died_in_between() -> None:
    """With such a death it is counted; without one, or one long after the outcome was written, it is a fault."""
    ask = asked(1)
    calls = called(ask)
    calls["n1", 0].append(Call("n1:0", "push", START + 60_000, True))
    assert [f.kind for f in verdict(ask, calls, kills=(START + 200,)).findings] == ["duplicate"]
    # The server may read what a worker had sent when that one is dead already.
    assert [f.kind for f in verdict(ask, calls, kills=(START + 50,)).findings] == ["duplicate"]
    for kills in ((), (START + 99 - BEHIND_MS,), (START + 101 + CALL_MS,)):
        found = verdict(ask, calls, kills=kills)
        assert [f.kind for f in found.findings] == ["unexplained_duplicate"]
        assert found.faults


def test_a_call_that_nobody_asked_for() -> None:
    """A key that belongs to no committed request."""
    ask = asked(1)
    calls = called(ask)
    calls["n2", 0] = [Call("n2:0", "push", START, True)]
    assert [f.kind for f in verdict(ask, calls).findings] == ["foreign"]


def test_findings_go_to_the_fault_before_them() -> None:
    """The table's rows: what came before the first fault has a row of its own."""
    ask = asked(1)
    calls = called(ask)
    del calls["n1", 1]
    judged = verdict(ask, calls)
    (row,) = rows([], judged)
    assert (row.name, row.lost) == ("no fault", 1)
    early, late = Fault("early", START, START, 400), Fault("late", START + 90_000, START + 90_000, 900)
    assert [(row.name, row.times, row.lost) for row in rows([late, early], judged)] == [("early", 1, 1), ("late", 1, 0)]
