"""The words of an explanation: every reason has some, and a whole story reads as it should."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from processor.domain.model import Emit
from relay.journal.explain import Explanation, explanation
from relay.journal.render import render
from relay.journal.status import Happened
from relay.journal.words import WHAT, WHY, why
from schemas.profile import Profile, QuietHours
from schemas.reasons import Reason
from schemas.records import EventType, OutcomeKind, UnknownPolicy
from schemas.state import RetryPolicy
from tests.support.journal import event
from tests.support.recipient import Player, ladder

GOLDEN = Path(__file__).with_name("timeline.txt")


def told(player: Player) -> Explanation:
    """The story of what a player's decisions emitted."""
    story = explanation([Happened(type=c.type, event=c.event) for c in player.commands if isinstance(c, Emit)])
    assert story is not None
    return story


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_sentence(reason: Reason) -> None:
    """A reason without words, or with the words of another one, is a decision that nobody can understand."""
    sentence = why(reason)
    assert len(sentence) > 10
    assert [r for r in Reason if WHY.get(r) == sentence] == [reason]
    assert not sentence.endswith(".")


@pytest.mark.parametrize("kind", list(EventType))
@pytest.mark.parametrize("reason", list(Reason))
def test_every_event_with_every_reason_reads_as_text(kind: EventType, reason: Reason) -> None:
    """No combination of type and reason, full or bare, fails or leaves a template's field open."""
    bare = event(reason=reason)
    full = event(
        reason=reason,
        step_no=0,
        channel="push",
        provider="fcm",
        attempt=1,
        key="k",
        detail="http_503",
        due_at=1,
        next_due_at=2,
        provider_ref="r",
        latency_ms=3,
        depth=1,
        expires_at=4,
    )
    for given_event in (bare, full):
        story = explanation([Happened(type=kind, event=given_event)])
        assert story is not None
        [line] = story.timeline
        assert line.text.startswith(WHAT[kind])
        assert not re.search(r"[{}]|None", "".join(story.lines()))


@given(st.text(), st.integers(-(2**63), 2**63 - 1), st.text())
def test_anything_an_event_may_hold_can_be_told(text: str, moment: int, reason: str) -> None:
    """Texts and times from outside, and reasons of a newer release, never stop an explanation or steer a terminal."""
    given_event = event(text, dedup_key=text, reason=reason, detail=text, due_at=moment, expires_at=moment, steps=())
    story = explanation([Happened(type=EventType.ACCEPTED, event=given_event)])
    assert story is not None
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", "".join(story.lines()))
    render(story, Console(file=io.StringIO(), width=80))


def test_no_events_no_story() -> None:
    """Of a notification that the journal does not know there is nothing to tell."""
    assert explanation([]) is None


def test_a_whole_story() -> None:
    """A ladder with a retry, an unclear answer, a refusal, quiet hours and a resolution, as the domain decides it."""
    player = Player()
    addresses = {"push": "token", "chat": "@ada", "email": "ada@example.test"}
    player.put(Profile(addresses=addresses, quiet_hours=QuietHours(from_="13:00", until="15:00")))
    player.notify(using=ladder(("push", 0), ("chat", 10), ("email", 120), retry=RetryPolicy(jitter=0)))
    player.now += 85
    player.answer(
        player.deliveries[-1],
        OutcomeKind.FAILED,
        reason="http_503",
        provider="fcm",
        retry_after_ms=5_000,
        latency_ms=85,
    )
    player.wait(0.1)
    player.answer(
        player.deliveries[-1],
        OutcomeKind.UNKNOWN,
        reason="timeout",
        provider="fcm",
        unknown_policy=UnknownPolicy.RESEND,
    )
    player.wait(0.1)
    player.answer(player.deliveries[-1], OutcomeKind.REJECTED, reason="http_404", provider="fcm", latency_ms=31)
    player.now += 300
    player.answer(player.deliveries[-1], OutcomeKind.SENT, provider="slack", provider_ref="m-42", latency_ms=300)
    open_story = told(player)
    assert open_story.next == "step 2 email is due at 2026-05-01 15:00:00.000, it expires at 2026-05-02 12:00:00.000"
    player.wait(61)
    player.resolve()
    assert told(player).lines() == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_the_timeline_at_a_terminal() -> None:
    """The coloured form tells the same events in the same order."""
    player = Player()
    player.put()
    player.notify()
    player.resolve()
    out = io.StringIO()
    render(told(player), Console(file=out, width=400))
    rest = out.getvalue()
    for text in [*(line.text for line in told(player).timeline), "next: nothing; the notification has ended"]:
        before, found, rest = rest.partition(text)
        assert found, f"{text!r} is not after {before!r}"
