"""What will happen in the demo, decided before it starts: who is told what, who acts when, and how providers answer.

The plan is the same for the same seed. It is what the business application plays and what the check judges by; the
system under test never sees it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum

RECIPIENTS = 60
NOTIFICATIONS = 336
PLAY_SECONDS = 36.0
"""Over how long the requests are spread."""
AFTERS: dict[str, tuple[tuple[str, float], ...]] = {
    "payment_action_required": (("push", 0.0), ("chat", 4.0), ("email", 8.0)),
    "document_awaiting_signature": (("push", 0.0), ("email", 5.0)),
    "order_shipped": (("chat", 0.0), ("email", 3.0)),
    "welcome": (("email", 0.0),),
}
"""The steps of each kind in the demo's ladders, in seconds after acceptance."""
STOPS_ON_SENT = frozenset({"order_shipped", "welcome"})


class Act(StrEnum):
    """When the person acts, seen from the notification."""

    NEVER = "never"
    BEFORE = "before"
    """The resolution is committed before the request."""
    BETWEEN = "between"
    """In the middle of the ladder, well away from any step."""
    TOO_LATE = "too_late"
    """After the last step has left."""


class Trouble(StrEnum):
    """How a recipient's providers behave; most behave well."""

    NONE = "none"
    PUSH_GONE = "push_gone"
    """The push token is revoked: 410, for ever."""
    MAILBOX_UNKNOWN = "mailbox_unknown"
    """550 for the mailbox."""
    PUSH_BUSY = "push_busy"
    """429 with Retry-After, then accepted."""
    CHAT_DOWN = "chat_down"
    """503 twice, then accepted."""
    PUSH_SILENT = "push_silent"
    """Accepted, and no answer before the time-out."""
    MAIL_SILENT = "mail_silent"
    """The mail server takes the message and does not say so before the time-out; SMTP knows no keys, so it is held."""
    NOTHING_WORKS = "nothing_works"
    """Every channel refuses for ever."""


@dataclass(frozen=True, slots=True)
class Person:
    """One recipient."""

    name: str
    trouble: Trouble
    withdraws_consent_at: float | None = None
    erased_at: float | None = None

    @property
    def addresses(self) -> dict[str, str]:
        """Where this person can be reached."""
        return {
            "push": f"token-{self.name}",
            "chat": f"@{self.name}",
            "email": f"{self.name}@example.test",
        }


@dataclass(frozen=True, slots=True)
class Request:
    """One notification that the business application asks for, in a transaction of its own."""

    number: int
    recipient: str
    kind: str
    at: float
    """Seconds after the start of the play."""
    act: Act = Act.NEVER
    act_at: float | None = None
    rolled_back: bool = False
    repeated: bool = False
    """The application asks a second time with the same key and body, as after a lost connection."""
    contradicted: bool = False
    """It asks a second time with the same key and another body, which is its bug."""

    @property
    def dedup_key(self) -> str:
        """The key of what the person is told about."""
        return f"{self.kind}-{self.number}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole play."""

    people: tuple[Person, ...]
    requests: tuple[Request, ...]
    seconds: float = field(default=PLAY_SECONDS)

    def person(self, name: str) -> Person:
        """The recipient of that name."""
        return next(p for p in self.people if p.name == name)


def make_plan(seed: int) -> Plan:
    """The play of a seed."""
    draw = random.Random(seed)  # noqa: S311 - a play, not a secret
    troubles = {
        3: Trouble.PUSH_GONE,
        11: Trouble.PUSH_GONE,
        17: Trouble.MAILBOX_UNKNOWN,
        23: Trouble.PUSH_BUSY,
        29: Trouble.PUSH_BUSY,
        31: Trouble.CHAT_DOWN,
        37: Trouble.CHAT_DOWN,
        41: Trouble.PUSH_SILENT,
        43: Trouble.PUSH_SILENT,
        45: Trouble.MAIL_SILENT,
        47: Trouble.NOTHING_WORKS,
    }
    people = tuple(
        Person(
            f"customer-{n:02}",
            troubles.get(n, Trouble.NONE),
            withdraws_consent_at=PLAY_SECONDS / 2 if n in {53, 54} else None,
            erased_at=PLAY_SECONDS / 2 if n == 59 else None,
        )
        for n in range(RECIPIENTS)
    )
    kinds = list(AFTERS)
    requests = tuple(
        _request(draw, number, people[number % RECIPIENTS], kinds[(number // RECIPIENTS + number) % len(kinds)])
        for number in range(NOTIFICATIONS)
    )
    return Plan(people, requests)


def _request(draw: random.Random, number: int, person: Person, kind: str) -> Request:
    at = PLAY_SECONDS * number / NOTIFICATIONS
    rolled_back = number % 19 == 7
    act, act_at = (Act.NEVER, None) if rolled_back or kind == "welcome" else _act(draw, kind, at)
    return Request(
        number=number,
        recipient=person.name,
        kind=kind,
        at=at,
        act=act,
        act_at=act_at,
        rolled_back=rolled_back,
        repeated=not rolled_back and number % 23 == 5,
        contradicted=not rolled_back and number % 29 == 6,
    )


def _act(draw: random.Random, kind: str, at: float) -> tuple[Act, float | None]:
    afters = [after for _, after in AFTERS[kind]]
    act = draw.choices(list(Act), weights=[35, 12, 40, 13])[0]
    if act is Act.BEFORE:
        return act, at - 0.4
    if act is Act.BETWEEN:
        step = draw.randrange(len(afters) - 1)
        # Well away from both steps: a resolution at a step's own moment may win or lose, and proves nothing.
        return act, at + draw.uniform(afters[step] + 1.2, afters[step + 1] - 0.8)
    if act is Act.TOO_LATE:
        return act, at + afters[-1] + 6.0
    return act, None


def stories(plan: Plan) -> list[Request]:
    """Requests with something to tell, the best first: refused by push, promoted and settled; then retries."""
    tellable = [r for r in plan.requests if r.kind == "payment_action_required" and not r.rolled_back]

    def those(trouble: Trouble, *acts: Act) -> list[Request]:
        return [r for r in tellable if plan.person(r.recipient).trouble is trouble and r.act in acts]

    # A token is refused once, by the person's first push; from then on it is known to be gone.
    refused = [r for r in those(Trouble.PUSH_GONE, Act.BETWEEN) if _is_first_push(plan, r)]
    retried = [r for t in (Trouble.CHAT_DOWN, Trouble.PUSH_BUSY) for r in those(t, Act.BETWEEN, Act.NEVER)]
    return refused + retried + those(Trouble.PUSH_GONE, Act.BETWEEN, Act.NEVER)


def _is_first_push(plan: Plan, request: Request) -> bool:
    return not any(
        other.recipient == request.recipient and other.at < request.at and AFTERS[other.kind][0][0] == "push"
        for other in plan.requests
        if not other.rolled_back and other.act is not Act.BEFORE
    )
