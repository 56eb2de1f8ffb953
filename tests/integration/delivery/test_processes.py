"""The delivery worker as processes: killed, joined by another, stopped."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable

from schemas.records import OutcomeKind
from tests.support.delivery import Stage, delivery, end
from tests.support.eventually import eventually
from tests.support.sinks import Sink

MakeStage = Callable[..., Stage]


def test_killed_after_the_providers_yes_the_second_call_has_the_same_key(make_stage: MakeStage, sink: Sink) -> None:
    """The process dies between the call and its outcome: the claim is called again with its key, the provider knows
    it, and there is one outcome."""
    stage = make_stage(timeout='"5s"')
    claim = delivery("ada")
    sink.answer({"match": {}, "answers": [{"hang_ms": 4500}]})
    first = stage.process("one")
    stage.deliver(claim)
    eventually(lambda: sink.calls(), timeout=30)
    assert end(first, signal.SIGKILL) == -signal.SIGKILL
    sink.answer()
    stage.process("one")
    (outcome,) = stage.outcomes(1, timeout=30)
    assert (outcome.outcome, outcome.key, outcome.claim) == ("sent", claim.key, 1)
    assert [(c["key"], c["accepted"], c["repeat"]) for c in sink.calls()] == [
        (claim.key, True, False),
        (claim.key, False, True),
    ]


def _wait_for_calls(sink: Sink, count: int) -> None:
    eventually(lambda: len(sink.calls()) > count, timeout=40)


def test_a_second_worker_joins_while_calls_are_in_flight(make_stage: MakeStage, sink: Sink) -> None:
    """Partitions move from one worker to two and back: one call per key, and one outcome per claim."""
    # A machine that stands still for a moment must not make calls of unknown outcome.
    stage = make_stage(concurrency=4, timeout='"5s"')
    sink.answer({"match": {}, "per": "rule", "answers": [{"delay_ms": 150}], "repeat": True})
    claims = [delivery(f"person-{n}") for n in range(60)]
    stage.process("one")
    stage.deliver(*claims)
    eventually(lambda: sink.calls(), timeout=40)
    second = stage.process("two")
    # In batches, so that calls are in flight whenever the machine gets around to a rebalance.
    while not any(event["partitions"] for event in stage.events("two", "partitions_assigned")):
        claims += [delivery(f"person-{len(claims) + n}") for n in range(12)]
        stage.deliver(*claims[-12:])
        assert len(claims) < 2_000, "the second worker got no partitions"
        _wait_for_calls(sink, len(claims) - 40)
    claims += [delivery(f"person-{len(claims) + n}") for n in range(60)]
    stage.deliver(*claims[-60:])
    eventually(lambda: stage.events("two", "attempt"), timeout=40)
    assert end(second) == 0
    outcomes = stage.outcomes(len(claims), timeout=60)
    calls = Counter(call["key"] for call in sink.calls())
    sent = {o.key for o in outcomes if o.outcome is OutcomeKind.SENT}
    handed_back = {o.key for o in outcomes if o.outcome is OutcomeKind.UNCLAIMED}
    assert set(calls.values()) == {1}
    others = {o.key: (o.outcome, o.reason) for o in outcomes if o.key in calls.keys() - sent}
    assert calls.keys() == sent, f"{len(outcomes)} outcomes of {len(claims)} claims; called and not sent: {others}"
    assert sent | handed_back == {claim.key for claim in claims}
    assert Counter((o.key, o.claim) for o in outcomes).most_common(1)[0][1] == 1


def test_a_call_is_waited_for_when_its_partition_moves(make_stage: MakeStage, sink: Sink) -> None:
    """However short a stop may be: whoever got the partition would call again."""
    stage = make_stage(timeout='"5s"')
    sink.answer({"match": {}, "per": "rule", "answers": [{"delay_ms": 4_500}], "repeat": True})
    environ = {"RUNG_SHUTDOWN_SECONDS": "1"}
    stage.process("one", environ)
    claims = [delivery(f"person-{n}") for n in range(20)]
    stage.deliver(*claims)
    eventually(lambda: sink.calls(), timeout=40)
    stage.process("two", environ)
    while not any(event["partitions"] for event in stage.events("two", "partitions_assigned")):
        claims += [delivery(f"person-{len(claims) + n}") for n in range(20)]
        stage.deliver(*claims[-20:])
        assert len(claims) < 1_000, "the second worker got no partitions"
        _wait_for_calls(sink, len(claims) - 20)
    outcomes = stage.outcomes(len(claims), timeout=60)
    assert {o.outcome for o in outcomes} == {OutcomeKind.SENT}
    assert Counter(call["key"] for call in sink.calls()) == dict.fromkeys((c.key for c in claims), 1)


def test_a_stop_finishes_calls_and_hands_back_the_rest(make_stage: MakeStage, sink: Sink) -> None:
    """SIGTERM: the call in flight is told as sent, waiting claims as unclaimed at once, and the exit code is 0."""
    stage = make_stage(concurrency=1, timeout='"5s"')
    sink.answer({"match": {}, "per": "rule", "answers": [{"delay_ms": 1000}], "repeat": True})
    claims = [delivery(f"person-{n}") for n in range(10)]
    process = stage.process("one")
    stage.deliver(*claims)
    eventually(lambda: sink.calls(), timeout=30)
    assert end(process) == 0
    outcomes = stage.outcomes(10, timeout=1)
    assert Counter((o.outcome, o.reason) for o in outcomes) == {("sent", ""): 1, ("unclaimed", "stopping"): 9}
    assert len(sink.calls()) == 1
    # Nothing is left for the next one to do.
    stage.process("one")
    extra = delivery("late")
    sink.answer()
    stage.deliver(extra)
    assert len(stage.outcomes(11, timeout=30)) == 11
    assert [call["key"] for call in sink.calls()][1:] == [extra.key]


def test_a_worker_that_stood_still_looks_before_it_calls(make_stage: MakeStage, sink: Sink) -> None:
    """The process is stopped while a claim waits for its lane, and the person acts meanwhile: when it goes on, it reads
    before it calls."""
    stage = make_stage(timeout='"5s"')
    first, second = delivery("ada"), delivery("ada")
    sink.answer({"match": {"notification_id": str(first.notification_id)}, "answers": [{"delay_ms": 1500}]})
    worker = stage.process("one")
    stage.deliver(first, second)
    eventually(lambda: len(sink.calls()) == 1, timeout=40)
    worker.send_signal(signal.SIGSTOP)
    stage.resolve(second)
    stopped_at = time.monotonic()
    eventually(lambda: time.monotonic() - stopped_at > 3, describe="a pause that is longer than the answer takes")
    worker.send_signal(signal.SIGCONT)
    outcomes = {o.key: (o.outcome, o.reason) for o in stage.outcomes(2, timeout=40)}
    assert outcomes[second.key] == ("suppressed", "resolved")
    assert [call["key"] for call in sink.calls()] == [first.key]
