"""The demo's judge finds each kind of fault; a judge that cannot fail proves nothing."""

from __future__ import annotations

import pytest

from deploy.demo.judge import IN_FLIGHT_MS, Call, Committed, judge
from deploy.demo.plan import AFTERS, NOTIFICATIONS, Act, Person, Plan, Request, Trouble, make_plan

T0 = 1_000_000


def plan(act: Act = Act.NEVER, trouble: Trouble = Trouble.NONE, **person: float) -> Plan:
    """One person with one payment."""
    request = Request(1, "ada", "payment_action_required", 0.0, act, 6.0 if act is Act.BETWEEN else None)
    return Plan((Person("ada", trouble, **person),), (request,))


def committed(of: Plan, settled_at: int | None = None) -> list[Committed]:
    """Its one request, committed at T0."""
    return [Committed(of.requests[0], "n1", T0, settled_at)]


def calls(*steps: int, late: int = 50) -> list[Call]:
    """Accepted calls of these steps, a moment after their time."""
    ladder = AFTERS["payment_action_required"]
    return [Call(f"n1:{n}", ladder[n][0], T0 + round(ladder[n][1] * 1000) + late, accepted=True) for n in steps]


def faults(of: Plan, made: list[Call], settled_at: int | None = None, **more: dict[str, int]) -> list[str]:
    """What the judge says."""
    return judge(of, committed(of, settled_at), [], more.get("stopped", {}), made).faults


def test_a_whole_ladder_passes() -> None:
    """Nobody acted, every step was called."""
    assert faults(plan(), calls(0, 1, 2)) == []


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_step_is_a_fault(missing: int) -> None:
    """Any step that had to be called and was not."""
    found = faults(plan(), calls(*(n for n in range(3) if n != missing)))
    assert [f"n1:{missing}: never called" in fault for fault in found] == [True]


def test_a_call_after_the_resolution_is_a_fault() -> None:
    """Beyond the race in flight; within it, it is counted."""
    of = plan(Act.BETWEEN)
    settled = T0 + 6_000
    assert faults(of, calls(0, 1), settled) == []
    assert len(faults(of, [*calls(0, 1), Call("n1:2", "email", settled + IN_FLIGHT_MS + 1, True)], settled)) == 1
    in_flight = judge(of, committed(of, settled), [], {}, [*calls(0, 1), Call("n1:2", "email", settled + 20, True)])
    assert (in_flight.faults, in_flight.in_flight, in_flight.slowest_stop_ms) == ([], 1, 20)


def test_a_call_after_an_early_resolution_is_a_fault_at_any_time() -> None:
    """The resolution was committed before the request: there is no race."""
    of = plan(Act.BEFORE)
    assert len(faults(of, calls(0), T0 - 400)) == 1


def test_a_message_of_a_rolled_back_transaction_is_a_fault() -> None:
    """The request never was."""
    of = plan()
    verdict = judge(of, committed(of), ["n2"], {}, [*calls(0, 1, 2), Call("n2:0", "push", T0, True)])
    assert ["rolled back" in fault for fault in verdict.faults] == [True]


def test_a_message_that_nobody_asked_for_is_a_fault() -> None:
    """An id that the application does not know."""
    assert ["nobody asked" in f for f in faults(plan(), [*calls(0, 1, 2), Call("n3:0", "push", T0, True)])] == [True]


def test_a_call_after_erasure_is_a_fault() -> None:
    """The person was erased after the first step."""
    of = plan(erased_at=3.0)
    assert faults(of, calls(0), stopped={"ada": T0 + 3_000}) == []
    assert len(faults(of, calls(0, 1, 2), stopped={"ada": T0 + 2_000})) == 2


def test_a_refused_channel_may_be_skipped() -> None:
    """The contact is dead: it is called by the first notification only."""
    assert faults(plan(trouble=Trouble.PUSH_GONE), calls(1, 2)) == []


def test_the_plan_has_what_the_demo_promises() -> None:
    """At least 300 committed notifications over 60 people and 4 kinds, every way to act and every trouble, and some
    transactions rolled back; the same for the same seed."""
    whole = make_plan(7)
    kept = [r for r in whole.requests if not r.rolled_back]
    assert len(kept) >= 300
    assert len(kept) < NOTIFICATIONS
    assert len({r.recipient for r in kept}) == 60
    assert {r.kind for r in kept} == set(AFTERS)
    assert {r.act for r in kept} == set(Act)
    assert {p.trouble for p in whole.people} == set(Trouble)
    assert make_plan(7) == whole
