"""Any history of one recipient (requests, answers, resolutions, repeats, time, in any order) and what always holds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from processor.domain.decide import decide
from processor.domain.derive import fingerprint
from processor.domain.ladder_end import OPEN, has_left
from processor.domain.model import (
    Deliver,
    Emit,
    NotifyReceived,
    OutcomeReceived,
    RedriveReceived,
    ResolutionReceived,
    WokeUp,
)
from processor.domain.quiet_hours import shift
from schemas.codec import decode_state, encode_state
from schemas.profile import Profile, QuietHours
from schemas.reasons import Reason
from schemas.records import EventType, Notify, Outcome, OutcomeKind, Resolve, UnknownPolicy
from schemas.state import End, Ladder, LadderStep, RecipientState, RetryPolicy, StepState
from tests.support.recipient import ADA, MINUTE, NOON, REACHABLE, Player, identity, key_of, redriven

KEYS = st.sampled_from(["k1", "k2", "k3"])
CHANNELS = ["push", "chat", "email"]


@st.composite
def ladders(draw: st.DrawFn) -> Ladder:
    """Any ladder: one to four steps, every option."""
    afters = sorted(draw(st.lists(st.integers(0, 90 * MINUTE), min_size=1, max_size=4)))
    return Ladder(
        kind=draw(st.sampled_from(["payment", "welcome"])),
        steps=tuple(
            LadderStep(channel=draw(st.sampled_from(CHANNELS)), after_ms=after, template="t") for after in afters
        ),
        stop_on=draw(st.sampled_from(["resolution", "sent", "delivered"])),
        expires_after_ms=draw(st.integers(afters[-1] + 1, 3 * 60 * MINUTE)),
        quiet_hours=draw(st.sampled_from(["shift", "ignore"])),
        ordering=draw(st.sampled_from(["first-attempt", "strict"])),
        retry=RetryPolicy(max_attempts=draw(st.integers(1, 5)), jitter=draw(st.sampled_from([0.0, 0.2]))),
    )


PROFILES = st.builds(
    Profile,
    addresses=st.fixed_dictionaries({}, optional={c: st.sampled_from(["a1", "a2"]) for c in CHANNELS}),
    quiet_hours=st.none()
    | st.builds(
        QuietHours,
        from_=st.sampled_from(["22:00", "12:05", "12:30"]),
        until=st.sampled_from(["07:30", "13:00", "12:20"]),
    ),
    time_zone=st.sampled_from([None, None, "Europe/Berlin", "Australia/Lord_Howe"]),
    preferences=st.sampled_from([{}, {"payment": {"push": False}}]),
    consent=st.sampled_from([{}, {"payment": False}]),
)


class OneRecipient(RuleBasedStateMachine):
    """Plays a history; the invariants look at every command that came out."""

    def __init__(self) -> None:
        super().__init__()
        self.player = Player()
        self.player.put(REACHABLE)
        self.ladders: dict[str, Ladder] = {}
        self.answered: list[Outcome] = []
        self.inputs: list[Any] = []

    def feed(self, event: Any) -> None:
        self.inputs.append(event)
        before, now = self.player.state, self.player.now
        decision = self.player.feed(event)
        assert decide(before, event, now) == decision, "the same arguments must give an equal decision"

    @rule(key=KEYS, ladder=ladders(), data=st.sampled_from([{}, {"n": 1}]), expires=st.none() | st.integers(1, 200))
    def notify(self, key: str, ladder: Ladder, data: dict[str, Any], expires: int | None) -> None:
        request = Notify(
            notification_id=identity(key),
            recipient=ADA,
            kind=ladder.kind,
            dedup_key=key,
            data=data,
            expires_at=None if expires is None else self.player.now + expires * MINUTE,
        )
        self.feed(NotifyReceived(ce_id=self.player.fresh_id(), notify=request, ladder=ladder))

    @rule(key=KEYS)
    def notify_of_an_unknown_kind(self, key: str) -> None:
        self.player.notify(key, None)

    @rule(
        which=st.integers(0, 10_000),
        ladder=ladders(),
        redrive_id=st.integers(1, 4),
        expires=st.none() | st.integers(-5, 200),
    )
    def redrive(self, which: int, ladder: Ladder, redrive_id: int, expires: int | None) -> None:
        """Of what was undelivered, or of something that nobody knows."""
        request = self._letter(which, expires)
        self.feed(RedriveReceived(redrive=redriven(request, redrive_id), ladder=ladder))

    @rule(which=st.integers(0, 10_000))
    def redrive_of_a_kind_that_is_gone(self, which: int) -> None:
        request = redriven(self._letter(which, None), 1_000 + len(self.player.commands))
        self.player.feed(RedriveReceived(redrive=request, ladder=None))

    def _letter(self, which: int, expires: int | None) -> Notify:
        letters = [aside.notify for aside in self.player.set_aside if aside.notify is not None]
        if which % 4 and letters:
            request = letters[-1 - which % len(letters)]
        else:
            request = Notify(notification_id=identity("k1"), recipient=ADA, kind="payment", dedup_key="k1")
        if expires is not None and which % 3 == 0:
            request = replace(request, expires_at=self.player.now + expires * MINUTE)
        return request

    @rule(key=KEYS)
    def resolve(self, key: str) -> None:
        word = Resolve(recipient=ADA, dedup_key=key, resolution="done")
        self.feed(ResolutionReceived(ce_id=self.player.fresh_id(), resolve=word))

    @rule(profile=PROFILES)
    def put(self, profile: Profile) -> None:
        self.player.put(profile)

    @rule()
    def erase(self) -> None:
        self.player.erase()

    @precondition(lambda self: self.player.deliveries)
    @rule(
        which=st.integers(0, 10_000),
        kind=st.sampled_from(OutcomeKind),
        retry_after=st.none() | st.integers(0, 10 * MINUTE) | st.sampled_from([-(10**30), 10**30]),
        policy=st.none() | st.sampled_from(UnknownPolicy),
        alive=st.booleans(),
        receipt=st.booleans(),
    )
    def answer(
        self,
        which: int,
        kind: OutcomeKind,
        retry_after: int | None,
        policy: UnknownPolicy | None,
        alive: bool,
        receipt: bool,
    ) -> None:
        """An answer to any claim there ever was: the newest ones more often."""
        claims = self.player.deliveries
        claim = claims[-1 - (which % len(claims) if which % 3 == 0 else 0)]
        report = Outcome(
            notification_id=claim.notification_id,
            recipient=ADA,
            dedup_key=claim.dedup_key,
            step_no=claim.step_no,
            channel=claim.channel,
            attempt=claim.attempt,
            claim=0 if receipt and kind in {OutcomeKind.DELIVERED, OutcomeKind.BOUNCED} else claim.claim,
            key=claim.key,
            outcome=kind,
            reason="resolved" if kind is OutcomeKind.SUPPRESSED else "code",
            contact_alive=alive,
            retry_after_ms=retry_after,
            unknown_policy=policy,
            at=self.player.now,
        )
        self.feed(OutcomeReceived(outcome=report))

    @precondition(lambda self: self.inputs)
    @rule(which=st.integers(0, 10_000))
    def repeat_an_input(self, which: int) -> None:
        """The relay, a rebalance or a receipt delivers an old record again: nothing is claimed for an input from the
        outbox that was seen."""
        event = self.inputs[which % len(self.inputs)]
        before = self.player.state
        decision = self.player.feed(event)
        if isinstance(event, RedriveReceived) and before is not None:
            known = before.notifications.get(event.redrive.dedup_key)
            if known is not None and fingerprint(str(event.redrive.redrive_id)) in known.redrives:
                assert decision.reason is Reason.REDELIVERED, "a redrive counts once, whatever came of it"
        if isinstance(event, NotifyReceived | ResolutionReceived):
            assert decision.reason is Reason.REDELIVERED
            assert not [c for c in decision.commands if isinstance(c, Emit) and c.type == EventType.ACCEPTED]

    @rule(due_in=st.integers(-MINUTE, MINUTE))
    def stray_wake_up(self, due_in: int) -> None:
        self.player.feed(WokeUp(recipient=ADA, due_at=self.player.now + due_in))

    @rule(minutes=st.sampled_from([0.01, 0.1, 0.6, 2, 11, 60]))
    def wait(self, minutes: float) -> None:
        self.player.wait(minutes)

    @invariant()
    def the_key_never_changes(self) -> None:
        for delivery in self.player.deliveries:
            assert delivery.key == key_of(delivery.dedup_key, delivery.step_no)

    @invariant()
    def attempts_are_bounded(self) -> None:
        ladder_of = {}
        for command in self.player.commands:
            if isinstance(command, Deliver):
                assert 1 <= command.delivery.attempt <= 5
                ladder_of[command.delivery.key] = command.delivery
        state = self.player.state
        for notification in state.notifications.values() if state else ():
            if notification.ladder is not None:
                most = notification.ladder.retry.max_attempts
                # What has left keeps the count of the ladder by which it left.
                assert all(0 <= s.attempts <= most for s in notification.steps if not has_left(s))

    @invariant()
    def nothing_is_claimed_after_a_stop(self) -> None:
        """In the order of the commands: once ended, a notification (by acceptance) has no further claim."""
        stopped: set[str] = set()
        ends = {EventType.RESOLVED, EventType.EXPIRED, EventType.ERASED, EventType.FINISHED, EventType.DEAD}
        for command in self.player.commands:
            if isinstance(command, Emit) and command.type in ends:
                stopped.add(command.event.dedup_key)
            elif isinstance(command, Emit) and command.type == EventType.ACCEPTED:
                stopped.discard(command.event.dedup_key)
            elif isinstance(command, Deliver):
                assert command.delivery.dedup_key not in stopped

    @invariant()
    def what_was_sent_is_never_claimed_again(self) -> None:
        """Not by a redrive either, as long as the notification is known."""
        sent: set[tuple[str, int | None]] = set()
        for command in self.player.commands:
            if isinstance(command, Deliver):
                assert (command.delivery.dedup_key, command.delivery.step_no) not in sent
            elif isinstance(command, Emit) and command.type is EventType.STEP_SENT:
                sent.add((command.event.dedup_key, command.event.step_no))
            elif isinstance(command, Emit) and command.event.reason == Reason.ACCEPTED:
                sent = {place for place in sent if place[0] != command.event.dedup_key}

    @invariant()
    def nothing_is_claimed_early(self) -> None:
        for delivery in self.player.deliveries:
            assert delivery.claimed_at >= delivery.due_at
            assert delivery.claimed_at < delivery.expires_at

    @invariant()
    def what_is_open_will_be_woken(self) -> None:
        """No step waits for ever: everything open has a wake-up outstanding, not later than its next moment."""
        state = self.player.state
        if state is None:
            return
        for notification in state.notifications.values():
            assert state.wake_at is not None
            assert state.wake_at in self.player.wakes
            if notification.ended is None:
                assert state.wake_at <= notification.expires_at
                for step in notification.steps:
                    if step.state is StepState.PENDING and step.due_at > self.player.now:
                        assert state.wake_at <= step.due_at

    @invariant()
    def the_state_can_be_stored(self) -> None:
        if self.player.state is not None:
            assert decode_state(encode_state(self.player.state)) == self.player.state

    @invariant()
    def each_event_has_an_id_of_its_own(self) -> None:
        """Repeats are dropped by id, so two different events never share one."""
        seen: dict[str, Any] = {}
        for command in self.player.commands:
            if isinstance(command, Emit):
                receipt = command.type in {EventType.STEP_DELIVERED, EventType.STEP_BOUNCED}
                assert receipt or command.event_id not in seen, (command, seen[command.event_id])
                seen[command.event_id] = command

    @invariant()
    def a_step_is_concluded_once(self) -> None:
        """Of one step of one acceptance: at most one `sent`, one `suppressed`, one `rejected`; nothing is retried after
        any of them, except that what is told late may show that a message had left."""
        counts: Counter[tuple[int, str, int | None, str]] = Counter()
        acceptance: Counter[str] = Counter()
        for command in self.player.commands:
            if isinstance(command, Emit):
                key = command.event.dedup_key
                acceptance[key] += command.type is EventType.ACCEPTED
                counts[acceptance[key], key, command.event.step_no, command.type] += 1
        for (_, _, _, kind), number in counts.items():
            if kind in {EventType.STEP_SENT, EventType.STEP_SUPPRESSED, EventType.STEP_REJECTED}:
                assert number == 1

    @invariant()
    def every_number_fits(self) -> None:
        """Whatever came in, what goes out fits what readers have."""
        for command in self.player.commands:
            if isinstance(command, Emit):
                event = command.event
                for at in (event.at, event.due_at, event.next_due_at, event.expires_at, event.attempt):
                    assert at is None or 0 <= at < 2**62

    def teardown(self) -> None:
        """Nothing lasts for ever: given time, every notification ends, and every one accepted is accounted for."""
        # The longest ladder of these histories, and a claim without an answer that was made just before its end.
        self.player.wait(3 * 60 + 5)
        state = self.player.state
        for notification in state.notifications.values() if state else ():
            assert notification.ended is not None
            assert all(step.state not in OPEN for step in notification.steps), "no step is left open by an end"
        self.player.wait(30 * 24 * 60)
        state = self.player.state
        assert state is None or state.notifications == {}
        assert state is None or state.early == {}


TestOneRecipient = OneRecipient.TestCase
TestOneRecipient.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)


@given(st.permutations(["notify", "resolve", "resolve again", "notify again"]))
def test_any_order_of_request_and_resolution_ends_resolved(order: list[str]) -> None:
    """Before, during and after acceptance, once or twice: the same end, and at most the first step had left."""
    player = Player()
    player.put(REACHABLE)
    ladder = Ladder(kind="payment", steps=(LadderStep(channel="push", after_ms=MINUTE, template="t"),))
    for what in order:
        if what.startswith("notify"):
            player.notify(using=ladder)
        else:
            player.resolve()
    player.wait(120)
    assert player.notification().ended is End.RESOLVED
    assert player.deliveries == []
    assert Counter(player.event_types())["notification.resolved"] == 1


@given(
    st.sampled_from(OutcomeKind),
    st.integers(-5, 10),
    st.integers(-5, 10),
    st.text(max_size=5),
    st.none() | st.integers(-(10**15), 10**15),
)
def test_a_nonsense_outcome_is_only_stale(
    kind: OutcomeKind, step_no: int, claim: int, dedup_key: str, retry: int | None
) -> None:
    """Steps that do not exist, claims that never were, unknown keys: a decision, never an exception."""
    player = Player()
    player.put(REACHABLE)
    player.notify()
    report = Outcome(
        notification_id=identity("k1"),
        recipient=ADA,
        dedup_key=dedup_key or "k1",
        step_no=step_no,
        channel="push",
        claim=claim,
        key="?",
        outcome=kind,
        retry_after_ms=retry,
        at=NOON,
    )
    assert decide(player.state, OutcomeReceived(outcome=report), player.now).reason in set(Reason)
    assert decide(None, OutcomeReceived(outcome=report), player.now).state is None


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2 * 24 * 60), st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", None]))
def test_no_claim_falls_into_quiet_hours(minutes: int, zone: str | None) -> None:
    """Whenever it is accepted: every claim of a kind that respects quiet hours lies outside them."""
    quiet = QuietHours(from_="21:00", until="09:00")
    player = Player(now=NOON + minutes * MINUTE)
    player.put(Profile(addresses=REACHABLE.addresses, quiet_hours=quiet, time_zone=zone))
    player.notify()
    answered = 0
    # From wake-up to wake-up: hours in which nothing happens cost nothing.
    while player.notification().ended is None:
        for delivery in player.deliveries[answered:]:
            player.answer(delivery, OutcomeKind.SENT)
            answered += 1
        player.advance(min(player.wakes))
    assert [d.step_no for d in player.deliveries] == [0, 1, 2]
    for delivery in player.deliveries:
        assert shift(delivery.claimed_at, quiet, zone) == delivery.claimed_at


def test_an_empty_state_is_no_state() -> None:
    """A recipient of whom nothing is known keeps no entry in the store."""
    assert decide(None, WokeUp(recipient=ADA, due_at=NOON), NOON).state is None
    assert RecipientState(recipient=ADA).notifications == {}
