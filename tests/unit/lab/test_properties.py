"""Any scenario: what the lab tells agrees with what the domain holds, and the promises of a ladder are kept."""

from collections import defaultdict
from uuid import uuid5

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from processor.domain.derive import NAMESPACE
from processor.domain.quiet_hours import shift
from processor.lab.answers import Answer
from processor.lab.scenario import Happening, Scenario
from processor.lab.simulation import Simulation, play
from schemas.profile import Profile, QuietHours
from schemas.records import EraseRecipient, EventType, Notify, OutcomeKind, PutRecipient, Resolve, UnknownPolicy
from schemas.state import Ladder, LadderStep, RetryPolicy

START = 1_777_672_800_000  # 2026-05-01T22:00:00Z
HOUR = 3_600_000
CHANNELS = ("push", "chat", "email")
QUIET = QuietHours(from_="23:00", until="01:30")
ENDS = {"sent": "finished", "delivered": "finished"}


def ladders() -> dict[str, Ladder]:
    """A ladder for each stop condition, with few attempts and short waits."""
    steps = tuple(
        LadderStep(channel=channel, after_ms=after, template="t")
        for channel, after in zip(CHANNELS, (0, 600_000, HOUR), strict=True)
    )
    retry = RetryPolicy(max_attempts=3, base_ms=1_000, cap_ms=60_000, jitter=0.0)
    return {
        "act": Ladder(kind="act", steps=steps, expires_after_ms=4 * HOUR, retry=retry),
        "once": Ladder(kind="once", steps=steps[:2], stop_on="sent", expires_after_ms=2 * HOUR, retry=retry),
        "proven": Ladder(kind="proven", steps=steps, stop_on="delivered", expires_after_ms=4 * HOUR, retry=retry),
        "strict": Ladder(kind="strict", steps=steps[2:], ordering="strict", expires_after_ms=4 * HOUR, retry=retry),
    }


moments = st.integers(0, 3 * 60).map(lambda minutes: START + minutes * 60_000)
keys = st.sampled_from(["k1", "k2", "k3"])
profiles = st.builds(
    Profile,
    addresses=st.dictionaries(st.sampled_from(CHANNELS), st.sampled_from(["a", "b"])),
    preferences=st.sampled_from([{}, {"act": {"push": False}}]),
    consent=st.sampled_from([{}, {}, {"act": False}, {"once": False}]),
)
notifies = st.builds(
    lambda kind, key, body: Notify(
        notification_id=uuid5(NAMESPACE, key), recipient="r", kind=kind, dedup_key=key, data={"body": body}
    ),
    st.sampled_from(sorted(ladders())),
    keys,
    st.sampled_from([1, 1, 1, 2]),
)
requests = st.one_of(
    notifies,
    notifies,
    notifies,
    st.builds(Resolve, recipient=st.just("r"), dedup_key=keys, resolution=st.just("done")),
    st.builds(PutRecipient, recipient=st.just("r"), profile=profiles),
    st.builds(EraseRecipient, recipient=st.just("r")),
)
answers = st.builds(
    Answer,
    outcome=st.sampled_from([OutcomeKind.FAILED, OutcomeKind.REJECTED, OutcomeKind.UNKNOWN, None]),
    reason=st.just("why"),
    retry_after_ms=st.none() | st.integers(0, HOUR),
    latency_ms=st.sampled_from([0, 0, 1_500, 120_000]),
    unknown_policy=st.sampled_from(UnknownPolicy),
) | st.builds(
    Answer,
    outcome=st.just(OutcomeKind.SENT),
    latency_ms=st.sampled_from([0, 0, 1_500, 120_000]),
    receipt=st.sampled_from([None, None, OutcomeKind.DELIVERED, OutcomeKind.BOUNCED]),
    receipt_after_ms=st.sampled_from([0, 1_000, HOUR]),
)
scripts = st.dictionaries(
    st.sampled_from([("r", channel) for channel in CHANNELS]), st.lists(answers, min_size=1, max_size=4).map(tuple)
)
scenarios = st.builds(
    lambda quiet, things, script: Scenario(
        START,
        None,
        (
            Happening(
                START,
                PutRecipient(recipient="r", profile=_with(quiet, Profile(addresses=dict.fromkeys(CHANNELS, "a")))),
            ),
            *(Happening(at, _quietly(quiet, request)) for at, request in sorted(things, key=lambda thing: thing[0])),
        ),
        script,
    ),
    st.booleans(),
    st.lists(st.tuples(moments, requests), min_size=1, max_size=8),
    scripts,
)


def _with(quiet: bool, profile: Profile) -> Profile:
    return Profile(
        addresses=profile.addresses,
        preferences=profile.preferences,
        consent=profile.consent,
        time_zone="Europe/London" if quiet else None,
        quiet_hours=QUIET if quiet else None,
    )


def _quietly(quiet: bool, request: object) -> object:
    return (
        PutRecipient(recipient="r", profile=_with(quiet, request.profile))
        if isinstance(request, PutRecipient)
        else request
    )


def of_type(simulation: Simulation, *types: EventType) -> list[tuple[str, object]]:
    """The events of some types."""
    return [(kind, event) for kind, event in simulation.events if kind in types]


@given(scenarios)
@settings(suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate], max_examples=100)
def test_what_is_told_is_what_the_store_holds(scenario: Scenario) -> None:
    """Read from delivery events alone, each notification has the end, the attempts and the step states that the store
    has, and each has ended."""
    simulation = play(scenario, ladders())
    state = simulation.recipients.get("r")
    for told in simulation.states:
        assert told.state != "open"
        held = None if state is None else state.notifications.get(told.dedup_key)
        if held is None:
            continue
        assert ENDS.get(told.state, told.state) == held.ended
        for seen, stored in zip(told.steps, held.steps, strict=True):
            # Of a lost claim the call may have been made, and the store does not count it as an attempt.
            assert 0 <= seen.attempts - stored.attempts <= 1
        steps = ["sent" if step.state == "delivered" else step.state for step in told.steps]
        assert steps == [str(step.state) for step in held.steps]


@given(scenarios)
@settings(suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate], max_examples=100)
def test_the_promises_of_a_ladder_hold(scenario: Scenario) -> None:
    """No call starts after an end; a step has at most its attempts and one key; nothing starts before its time unless
    it was promoted, nor in quiet hours; and whatever repeats, each dedup key is accepted once."""
    simulation = play(scenario, ladders())
    ended, planned, accepted = {}, {}, set()
    attempts: dict[tuple[str, int | None], set[int | None]] = defaultdict(set)
    quiet = any(
        isinstance(h.request, PutRecipient) and h.request.profile.quiet_hours is not None for h in scenario.happenings
    )
    erased = [h.at for h in scenario.happenings if isinstance(h.request, EraseRecipient)]
    for kind, event in simulation.events:
        key = event.dedup_key
        if kind == EventType.ACCEPTED:
            assert key not in accepted
            accepted.add(key)
            planned |= {(key, step.step_no): step.due_at for step in event.steps or ()}
        elif kind in {EventType.STEP_PROMOTED, EventType.STEP_DEFERRED} and event.next_due_at is not None:
            planned[key, event.step_no or 0] = event.next_due_at
        elif kind in {EventType.RESOLVED, EventType.EXPIRED, EventType.FINISHED, EventType.DEAD, EventType.ERASED}:
            assert key not in ended, "an ended notification stays ended"
            ended[key] = event.at
        elif kind == EventType.STEP_CLAIMED:
            assert key not in ended
            assert event.at >= planned[key, event.step_no or 0]
            assert event.key == f"{event.notification_id}:{event.step_no}"
            attempts[key, event.step_no].add(event.attempt)
            if quiet and not any(at <= event.at for at in erased):
                assert shift(event.at, QUIET, "Europe/London") == event.at
    assert all(len(numbers) <= 3 and max(numbers) <= 3 for numbers in attempts.values())
