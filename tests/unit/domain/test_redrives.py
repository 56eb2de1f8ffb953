"""A dead notification that an operator puts back: opened once per redrive, and never against what happened since."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from processor.domain.model import OutcomeReceived, RecipientErased, RecipientPut
from schemas.profile import Profile
from schemas.reasons import DeadReason, Reason
from schemas.records import EraseRecipient, Notify, Outcome, PutRecipient
from schemas.records import EventType as E
from schemas.records import OutcomeKind as O
from schemas.state import End, RetryPolicy, StepState
from tests.support.recipient import ADA, MINUTE, NOON, REACHABLE, Player, identity, key_of, ladder

ONCE = ladder(("push", 0), ("chat", 10), retry=RetryPolicy(max_attempts=1, jitter=0))


def dead(using: object = ONCE, **options: object) -> tuple[Player, Notify]:
    """A notification all of whose calls failed, and the request in its dead letter."""
    player = Player()
    player.put(REACHABLE)
    player.notify(using=using, data={"amount": 1}, **options)  # type: ignore[arg-type]
    answered = 0
    while player.notification().ended is None:
        for delivery in player.deliveries[answered:]:
            answered += 1
            player.answer(delivery, O.FAILED, reason="http_503")
        player.wait(1)
    assert player.notification().ended is End.DEAD
    letter = player.set_aside[-1].notify
    assert letter is not None
    player.commands.clear()
    return player, letter


def test_a_redrive_opens_the_ladder_again_under_the_same_keys() -> None:
    """A plan from now, the request's data, the same attempt keys; claims are counted on and attempts anew."""
    player, letter = dead()
    began = player.now
    assert player.redrive(letter, using=ONCE).reason is Reason.REDRIVEN
    (first,) = player.deliveries
    assert (first.key, first.attempt, first.claim, first.data) == (key_of("k1", 0), 1, 2, {"amount": 1})
    (accepted,) = player.events(E.ACCEPTED)
    assert accepted.reason == Reason.REDRIVEN
    assert [s.due_at - began for s in accepted.steps or ()] == [0, 10 * MINUTE]
    player.answer(first, O.SENT)
    player.wait(10)
    player.answer(player.deliveries[1], O.SENT)
    assert player.notification().ended is End.FINISHED


def test_a_redrive_counts_once() -> None:
    """The same record again does nothing, while it is open and after it has died again; another redrive does."""
    player, letter = dead()
    player.redrive(letter, 1, ONCE)
    assert player.redrive(letter, 1, ONCE).reason is Reason.REDELIVERED
    for _ in range(2):
        player.answer(player.deliveries[-1], O.FAILED)
        player.wait(10)
    assert player.notification().ended is End.DEAD
    assert player.redrive(letter, 1, ONCE).reason is Reason.REDELIVERED
    assert player.set_aside[-1].redrives == 1
    assert player.redrive(letter, 2, ONCE).reason is Reason.REDRIVEN


def test_a_plain_repeat_of_the_request_opens_nothing() -> None:
    """Only a redrive opens it: the request as it was is a duplicate."""
    player, letter = dead()
    assert player.notify(using=ONCE, data=letter.data).reason is Reason.DUPLICATE
    assert player.deliveries == []


def test_whoever_acted_meanwhile_is_told_nothing() -> None:
    """A resolution after the end is remembered with it, and the redrive is refused by that name."""
    player, letter = dead()
    player.resolve()
    assert player.redrive(letter, using=ONCE).reason is Reason.RESOLVED
    assert [e.reason for e in player.events(E.DUPLICATE)] == [Reason.RESOLVED]
    assert player.deliveries == []


def test_withdrawn_consent_stops_it_before_any_call() -> None:
    """It is opened and every step suppressed: the person does not want it."""
    player, letter = dead()
    player.put(replace(REACHABLE, consent={"payment": False}))
    player.redrive(letter, using=ONCE)
    player.wait(60)
    assert player.deliveries == []
    assert {e.reason for e in player.events(E.STEP_SUPPRESSED)} == {Reason.CONSENT_WITHDRAWN}
    assert player.notification().ended is End.FINISHED


def test_an_expiry_that_was_asked_for_still_holds() -> None:
    """Past it the redrive is refused; before it the new plan ends with it. The ladder's own begins anew."""
    player, letter = dead(expires_at=NOON + 60 * MINUTE)
    assert letter.expires_at == NOON + 60 * MINUTE
    assert player.redrive(letter, 1, ONCE).reason is Reason.REDRIVEN
    assert player.notification().expires_at == NOON + 60 * MINUTE
    player, letter = dead(expires_at=NOON + 60 * MINUTE)
    player.wait(60)
    assert player.redrive(letter, 1, ONCE).reason is Reason.EXPIRED
    player, letter = dead()
    player.wait(26 * 60)
    player.redrive(letter, 1, ONCE)
    assert player.notification().expires_at == player.now + ONCE.expires_after_ms
    assert player.deliveries


def test_an_open_a_finished_and_an_expired_one_stand_as_they_are() -> None:
    """Each is refused with the name of what it is."""
    player, letter = dead()
    player.redrive(letter, 1, ONCE)
    assert player.redrive(letter, 2, ONCE).reason is Reason.DUPLICATE
    player.answer(player.deliveries[0], O.SENT)
    player.wait(10)
    player.answer(player.deliveries[1], O.SENT)
    assert player.redrive(letter, 3, ONCE).reason is Reason.LADDER_ENDED
    player, letter = dead()
    player.redrive(letter, 1, ONCE)
    player.wait(25 * 60)
    assert player.redrive(letter, 4, ONCE).reason is Reason.EXPIRED


def test_an_erased_person_stays_erased() -> None:
    """An erasure after a death does not change how it ended, and no address is left; nothing is claimed."""
    player, letter = dead()
    player.erase()
    player.redrive(letter, using=ONCE)
    player.wait(60)
    assert player.deliveries == []


def test_what_is_forgotten_is_not_opened() -> None:
    """After its retention nobody knows whether the person acted: set aside, by name, and no state."""
    player, letter = dead()
    player.wait(8 * 24 * 60)
    assert player.redrive(letter, using=ONCE).reason is Reason.FORGOTTEN
    assert [s.reason for s in player.set_aside] == [DeadReason.FORGOTTEN]
    assert player.deliveries == []


def test_another_body_or_id_is_a_conflict() -> None:
    """A redrive that is not of this notification changes nothing."""
    player, letter = dead()
    assert player.redrive(replace(letter, data={"amount": 2}), using=ONCE).reason is Reason.CONFLICT
    assert [s.reason for s in player.set_aside] == [DeadReason.CONFLICT]
    assert player.deliveries == []


def test_a_kind_that_is_gone_is_set_aside_again() -> None:
    """And the same redrive counts once the kind is back."""
    player, letter = dead()
    assert player.redrive(letter, using=None).reason is Reason.UNKNOWN_KIND
    assert [s.reason for s in player.set_aside] == [DeadReason.UNKNOWN_KIND]
    assert player.redrive(letter, using=ONCE).reason is Reason.REDRIVEN


def test_a_refused_address_stays_refused_until_it_changes() -> None:
    """The dead contact is looked at again; with a new address the redrive reaches the person."""
    player = Player()
    player.put(Profile(addresses={"push": "old"}))
    player.notify(using=(only := ladder(("push", 0))))
    player.answer(player.deliveries[0], O.REJECTED)
    letter = player.set_aside[-1].notify
    assert letter is not None
    player.redrive(letter, 1, only)
    assert len(player.deliveries) == 1
    assert player.notification().ended is End.DEAD
    player.put(Profile(addresses={"push": "new"}))
    player.redrive(letter, 2, only)
    assert [d.address for d in player.deliveries] == ["old", "new"]


def test_a_step_that_had_left_after_all_is_not_sent_again() -> None:
    """A receipt after the death: that step stays, the rest is planned; where the ladder stops at a message, nothing."""
    player, letter = dead()
    for stop_on, reason in (("resolution", Reason.REDRIVEN), ("sent", Reason.LADDER_ENDED)):
        receipt = Player(state=player.state, now=player.now)
        assert _receipt(receipt, 0) is StepState.SENT
        assert receipt.redrive(letter, using=replace(ONCE, stop_on=stop_on)).reason is reason
        receipt.wait(20)
        assert {d.step_no for d in receipt.deliveries} == ({1} if reason is Reason.REDRIVEN else set())


def _receipt(player: Player, step_no: int) -> StepState:
    report = Outcome(
        notification_id=identity("k1"),
        recipient=ADA,
        dedup_key="k1",
        step_no=step_no,
        channel="push",
        key=key_of("k1", step_no),
        outcome=O.DELIVERED,
        at=player.now,
    )
    player.feed(OutcomeReceived(outcome=report))
    return player.notification().steps[step_no].state


@pytest.mark.parametrize("channels", [("email",), ("email", "chat", "push")])
def test_the_ladder_of_today_is_climbed(channels: tuple[str, ...]) -> None:
    """Another ladder meanwhile: its channels are planned, and claims of a step are counted on."""
    player, letter = dead()
    player.redrive(letter, using=ladder(*((channel, 0) for channel in channels)))
    assert [d.channel for d in player.deliveries] == list(channels)
    assert [d.claim for d in player.deliveries] == [2, 2, 1][: len(channels)]


def test_a_ladder_shorter_than_what_has_left_has_ended() -> None:
    """Nothing is planned in the place of a step that is not in the ladder any more."""
    player, letter = dead()
    _receipt(player, 1)
    assert player.redrive(letter, using=ladder(("push", 0))).reason is Reason.LADDER_ENDED


@pytest.mark.parametrize("later", ["put", "erase"])
@pytest.mark.parametrize("back", ["put", "erase"])
def test_a_profile_change_that_comes_back_does_not_undo_a_later_one(later: str, back: str) -> None:
    """Set aside at noon, another one applied since: the old one is set aside for good. Without, it is applied."""
    for since, reasons in ((NOON - 1, {Reason.SUPERSEDED}), (NOON + 1, {Reason.PROFILE_UPDATED, Reason.ERASED})):
        player = Player()
        if later == "put":
            player.put(REACHABLE)
        else:
            player.put(REACHABLE)
            player.erase()
        before = player.state
        if back == "put":
            put = PutRecipient(recipient=ADA, profile=Profile(locale="de"))
            decision = player.feed(RecipientPut(ce_id="old", put=put, set_aside_at=since))
        else:
            erase = EraseRecipient(recipient=ADA)
            decision = player.feed(RecipientErased(ce_id="old", erase=erase, set_aside_at=since))
        assert decision.reason in reasons
        if decision.reason is Reason.SUPERSEDED:
            assert player.state == before
            assert [s.reason for s in player.set_aside] == [DeadReason.SUPERSEDED]


def test_what_comes_back_to_an_unknown_recipient_is_applied() -> None:
    """Nothing later is known."""
    player = Player()
    put = PutRecipient(recipient=ADA, profile=REACHABLE)
    assert player.feed(RecipientPut(ce_id="old", put=put, set_aside_at=NOON)).reason is Reason.PROFILE_UPDATED
