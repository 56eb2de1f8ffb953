"""The memory engine with the real decision: the clock, the waits, the provider, and what a fault leaves behind."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from processor.domain.decide import decide
from processor.domain.model import Decision, Event
from processor.engine.handler import Handler
from processor.engine.memory import MemoryEngine
from processor.engine.port import InputRecord, StateError
from schemas import records as r
from schemas.codec import encode_key
from schemas.profile import Profile
from schemas.state import End, RecipientState
from schemas.topics import DELIVERIES, DELIVERY_EVENTS, NOTIFICATIONS
from tests.support.engine import LADDERS, notify, raw
from tests.support.engine_script import count
from tests.support.recipient import ladder

NOON = 1_777_636_800_000
MINUTE = 60_000
CLIMB = {"payment": ladder(("push", 0), ("chat", 10), ("email", 120))}
REACHABLE = Profile(addresses={"push": "token", "chat": "@ada", "email": "ada@example.test"})


def sent(delivery: r.Delivery, now: int) -> Iterable[r.Outcome]:
    """A provider that accepts everything after a second."""
    return [
        r.Outcome(
            notification_id=delivery.notification_id,
            recipient=delivery.recipient,
            dedup_key=delivery.dedup_key,
            step_no=delivery.step_no,
            channel=delivery.channel,
            attempt=delivery.attempt,
            claim=delivery.claim,
            key=delivery.key,
            outcome=r.OutcomeKind.SENT,
            provider="test",
            at=now + 1_000,
        )
    ]


def climbing() -> MemoryEngine:
    """An engine with a ladder of three steps and a provider that accepts."""
    engine = MemoryEngine(decide, CLIMB, start=NOON, provider=sent)
    engine.send(r.PutRecipient(recipient="ada", profile=REACHABLE))
    return engine


def delivered(engine: MemoryEngine) -> list[tuple[int, str]]:
    """When, in minutes after noon, and on which channel deliveries were made."""
    wanted = [w for w in engine.outputs if w.record.topic is DELIVERIES]
    channels = [msgspec.json.decode(w.record.value or b"", type=r.Delivery).channel for w in wanted]
    return [((w.at - NOON) // MINUTE, channel) for w, channel in zip(wanted, channels, strict=True)]


def test_a_ladder_is_climbed_at_its_times() -> None:
    """Nobody acts: the steps leave after nothing, ten minutes and two hours, with nobody waiting for it."""
    engine = climbing()
    engine.send(notify("ada", "k"))
    while engine.advance():
        pass
    assert delivered(engine) == [(0, "push"), (10, "chat"), (120, "email")]


def test_a_resolution_scheduled_between_steps_stops_the_rest() -> None:
    """Somebody acts after eleven minutes: the e-mail never leaves."""
    engine = climbing()
    engine.schedule(NOON + 11 * MINUTE, r.Resolve(recipient="ada", dedup_key="k", resolution="paid"))
    engine.send(notify("ada", "k"))
    engine.advance_to(NOON + 180 * MINUTE)
    assert delivered(engine) == [(0, "push"), (10, "chat")]
    assert engine.now == NOON + 180 * MINUTE


def test_two_runs_are_the_same_to_the_byte() -> None:
    """Nothing in a run depends on the wall clock or on chance."""

    def run() -> list[object]:
        engine = climbing()
        engine.send(notify("ada", "k"))
        engine.advance_to(NOON + 180 * MINUTE)
        return [(w.at, w.record.topic.name, w.record.key, w.record.value, w.record.headers) for w in engine.outputs]

    assert run() == run()


def test_time_stands_still_until_it_is_told_to_move() -> None:
    """Nothing that is due later happens by itself, and `next_at` says when it would."""
    engine = climbing()
    engine.send(notify("ada", "k"))
    assert engine.now == NOON
    assert engine.next_at == NOON + 1_000
    engine.advance_to(NOON + 9 * MINUTE)
    assert delivered(engine) == [(0, "push")]


def test_a_fault_in_the_decision_changes_nothing() -> None:
    """A decision that raises leaves state, outputs and schedule as they were."""
    engine = MemoryEngine(count, LADDERS)
    engine.send(notify("ada", "k1"))
    before = engine.states, len(engine.outputs)
    with pytest.raises(RuntimeError, match="asked for a crash"):
        engine.send(notify("ada", "k2", crash=True))
    assert (engine.states, len(engine.outputs)) == before


def test_a_state_that_cannot_be_read_is_an_error_and_not_a_dead_letter() -> None:
    """It is our fault: the engine stops with the place of the record and nothing of its content."""
    engine = MemoryEngine(count, LADDERS, states={encode_key("ada"): b'{"recipient":7}'})
    with pytest.raises(StateError, match=r"notifications\[0\]@0 cannot be read \(bad_field\)") as error:
        engine.send(notify("ada", "secret-key"))
    assert "secret-key" not in str(error.value)
    assert engine.outputs == []


def test_a_state_that_would_grow_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is a dead letter, the state stays, and what the domain itself has to add is still written."""
    engine = MemoryEngine(decide, CLIMB, start=NOON)
    engine.send(r.PutRecipient(recipient="ada", profile=REACHABLE))
    engine.send(notify("ada", "k1"))
    state = engine.state("ada")
    monkeypatch.setattr("processor.engine.handler.OPENING_BYTES", 1_000)
    (letter,) = engine.send(notify("ada", "k2", text="x" * 2_000))
    assert dict(letter.record.headers)["rung_dl_reason"] == b"too_large"
    assert engine.state("ada") == state
    engine.advance_to(NOON + 10 * MINUTE)
    assert engine.state("ada") != state


def test_a_full_state_refuses_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large a recipient's state is: a resolution, a withdrawn consent and an erasure take effect."""
    engine = MemoryEngine(decide, CLIMB, start=NOON)
    engine.send(r.PutRecipient(recipient="ada", profile=REACHABLE))
    engine.send(notify("ada", "k1"))
    engine.send(notify("ada", "k2"))
    monkeypatch.setattr("processor.engine.handler.OPENING_BYTES", 10)
    engine.send(r.Resolve(recipient="ada", dedup_key="k1", resolution="paid"))
    withdrawn = Profile(addresses=REACHABLE.addresses, consent={"payment": False}, locale="x" * 1_000)
    engine.send(r.PutRecipient(recipient="ada", profile=withdrawn))
    state = engine.state("ada")
    assert state is not None
    assert (state.notifications["k1"].ended, state.profile) == (End.RESOLVED, withdrawn)
    engine.send(r.EraseRecipient(recipient="ada"))
    state = engine.state("ada")
    assert state is not None
    assert state.profile is None


def test_the_clock_never_goes_back_within_a_partition() -> None:
    """A wall clock that is set back does not make a later record's decision earlier."""
    times = iter([5_000, 3_000, 6_000])
    seen: list[int] = []

    class Store:
        def read(self, key: bytes) -> bytes | None:
            return None

        def write(self, key: bytes, value: bytes | None) -> None:
            pass

    def decide_and_note(state: RecipientState | None, event: Event, now: int) -> Decision:
        seen.append(now)
        return count(state, event, now)

    handler = Handler(decide_and_note, LADDERS, lambda: next(times))
    key, value, headers = raw(notify("ada", "k"), "n1")
    pairs = [(n, t if isinstance(t, bytes) else t.encode()) for n, t in headers.items()]
    for offset in range(3):
        handler.handle(InputRecord(NOTIFICATIONS, 0, offset, 0, key, value, list(pairs)), Store())
    assert seen == [5_000, 5_000, 6_000]


def test_outputs_name_their_moment() -> None:
    """Each output carries the moment of the clock at which it was written."""
    engine = climbing()
    engine.send(notify("ada", "k"))
    engine.advance_to(NOON + 10 * MINUTE)
    moments = [w.at - NOON for w in engine.outputs if w.record.topic is DELIVERY_EVENTS]
    assert moments == sorted(moments)
    assert moments[-1] == 10 * MINUTE
