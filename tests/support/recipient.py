"""One recipient, played through `decide` with a clock that the test moves: no engine, no Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID, uuid5

from processor.domain.decide import decide
from processor.domain.derive import NAMESPACE, attempt_key
from processor.domain.model import (
    Decision,
    Deliver,
    Emit,
    Event,
    NotifyReceived,
    OutcomeReceived,
    RecipientErased,
    RecipientPut,
    RedriveReceived,
    ResolutionReceived,
    SetAside,
    WakeAt,
    WokeUp,
)
from schemas.profile import Profile
from schemas.records import (
    Delivery,
    DeliveryEvent,
    EraseRecipient,
    EventType,
    Notify,
    Outcome,
    OutcomeKind,
    PutRecipient,
    Redrive,
    Resolve,
)
from schemas.state import Ladder, LadderStep, Notification, RecipientState, RetryPolicy

NOON = 1_777_636_800_000
"""2026-05-01 12:00:00 UTC."""
MINUTE = 60_000
ADA = "ada"
REACHABLE = Profile(addresses={"push": "token-1", "chat": "@ada", "email": "ada@example.test"})


def ladder(*steps: tuple[str, int], kind: str = "payment", **options: Any) -> Ladder:
    """A ladder of (channel, after in minutes) with an exact backoff."""
    options.setdefault("retry", RetryPolicy(jitter=0))
    return Ladder(
        kind=kind,
        steps=tuple(LadderStep(channel=c, after_ms=round(m * MINUTE), template=kind) for c, m in steps),
        **options,
    )


THREE = ladder(("push", 0), ("chat", 10), ("email", 120))


@dataclass
class Player:
    """Feeds events, keeps the state and every command, and hands wake-ups back in their time."""

    now: int = NOON
    state: RecipientState | None = None
    commands: list[Any] = field(default_factory=list)
    wakes: list[int] = field(default_factory=list)
    last: Decision | None = None
    ids: Iterable[int] = field(default_factory=lambda: count(1))

    def feed(self, event: Event) -> Decision:
        """Decide one event now."""
        self.last = decide(self.state, event, self.now)
        self.state = self.last.state
        self.commands += self.last.commands
        self.wakes += [c.due_at for c in self.last.commands if isinstance(c, WakeAt)]
        return self.last

    def fresh_id(self) -> str:
        """An id that no other input has."""
        return f"ce-{next(iter(self.ids))}"

    def put(self, profile: Profile = REACHABLE, ce_id: str | None = None) -> Decision:
        return self.feed(RecipientPut(ce_id=ce_id or self.fresh_id(), put=PutRecipient(recipient=ADA, profile=profile)))

    def erase(self) -> Decision:
        return self.feed(RecipientErased(ce_id=self.fresh_id(), erase=EraseRecipient(recipient=ADA)))

    def notify(
        self,
        key: str = "k1",
        using: Ladder | None = THREE,
        *,
        data: dict[str, Any] | None = None,
        expires_at: int | None = None,
        ce_id: str | None = None,
    ) -> Decision:
        request = Notify(
            notification_id=identity(key),
            recipient=ADA,
            kind=using.kind if using else "unheard-of",
            dedup_key=key,
            data=data or {},
            expires_at=expires_at,
        )
        return self.feed(NotifyReceived(ce_id=ce_id or self.fresh_id(), notify=request, ladder=using))

    def redrive(self, letter: Notify, redrive_id: int = 1, using: Ladder | None = THREE) -> Decision:
        """Put an undelivered request back."""
        return self.feed(RedriveReceived(redrive=redriven(letter, redrive_id), ladder=using))

    def resolve(self, key: str = "k1", ce_id: str | None = None) -> Decision:
        word = Resolve(recipient=ADA, dedup_key=key, resolution="paid")
        return self.feed(ResolutionReceived(ce_id=ce_id or self.fresh_id(), resolve=word))

    def answer(self, delivery: Delivery, kind: OutcomeKind, **fields: Any) -> Decision:
        """Report what became of a claim."""
        report = Outcome(
            notification_id=delivery.notification_id,
            recipient=ADA,
            dedup_key=delivery.dedup_key,
            step_no=delivery.step_no,
            channel=delivery.channel,
            attempt=delivery.attempt,
            claim=delivery.claim,
            key=delivery.key,
            outcome=kind,
            at=self.now,
            **fields,
        )
        return self.feed(OutcomeReceived(outcome=report))

    def advance(self, to: int) -> None:
        """Let time pass, with every wake-up at its moment."""
        while (due := min((w for w in self.wakes if w <= to), default=None)) is not None:
            self.wakes.remove(due)
            self.now = max(self.now, due)
            self.feed(WokeUp(recipient=ADA, due_at=due))
        self.now = to

    def wait(self, minutes: float) -> None:
        """Let minutes pass."""
        self.advance(self.now + round(minutes * MINUTE))

    @property
    def deliveries(self) -> list[Delivery]:
        return [c.delivery for c in self.commands if isinstance(c, Deliver)]

    @property
    def set_aside(self) -> list[SetAside]:
        return [c for c in self.commands if isinstance(c, SetAside)]

    def events(self, *types: EventType) -> list[DeliveryEvent]:
        return [c.event for c in self.commands if isinstance(c, Emit) and (not types or c.type in types)]

    def event_types(self) -> list[str]:
        return [c.type.removeprefix("rung.") for c in self.commands if isinstance(c, Emit)]

    def notification(self, key: str = "k1") -> Notification:
        assert self.state is not None
        return self.state.notifications[key]


def redriven(letter: Notify, redrive_id: int) -> Redrive:
    """The redrive of a request."""
    return Redrive(
        redrive_id=UUID(int=redrive_id),
        notification_id=letter.notification_id,
        recipient=letter.recipient,
        kind=letter.kind,
        dedup_key=letter.dedup_key,
        data=letter.data,
        expires_at=letter.expires_at,
    )


def identity(key: str) -> UUID:
    """The id of the notification with a dedup key."""
    return uuid5(NAMESPACE, key)


def key_of(key: str, step_no: int) -> str:
    """The attempt key of a step of the notification with a dedup key."""
    return attempt_key(identity(key), step_no)
