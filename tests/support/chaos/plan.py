"""What the steady load asks for: the kinds, their steps, and when people act."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

PEOPLE = 120
AFTERS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "payment": (("push", 0.0), ("chat", 2.0), ("email", 4.0)),
    "signature": (("push", 0.0), ("email", 3.0)),
    "shipped": (("chat", 0.0), ("email", 2.0)),
    "welcome": (("email", 0.0),),
}
"""The steps of each kind: channel, and seconds after acceptance."""
STOPS_ON_SENT = frozenset({"shipped", "welcome"})
# Attempts enough for five minutes without a provider, and waits so long that some thousands that all fail do not take
# the whole machine.
_KIND = """
[kinds.{name}]
stop_on = "{stop_on}"
expires_after = "2h"
retry = {{ max_attempts = 100, base = "300ms", cap = "30s" }}
steps = [
{steps}
]
"""


class Act(StrEnum):
    """When the person acts."""

    NEVER = "never"
    BEFORE = "before"
    BETWEEN = "between"
    TOO_LATE = "too late"


@dataclass(slots=True)
class Ask:
    """A notification that the load asks for. Times are milliseconds since the epoch; None is not yet."""

    number: int
    recipient: str
    kind: str
    act: Act
    asked_at: int
    """When it was to be asked for; a database that is away makes its commit later."""
    act_after: float | None
    """Seconds after that until the person acts."""
    committed_at: int | None = None
    notification_id: str = ""
    settled_at: int | None = None
    """When the commit of the resolution returned."""
    attempts: list[str] = field(default_factory=list)
    """Errors of the database on the way."""

    @property
    def dedup_key(self) -> str:
        """The key of what the person is told about."""
        return f"{self.kind}-{self.number}"

    def due(self) -> dict[int, int]:
        """Each step that has a time of its own, and when it is due: those that nothing before can make unnecessary."""
        if self.committed_at is None:
            return {}
        steps = AFTERS[self.kind][:1] if self.kind in STOPS_ON_SENT else AFTERS[self.kind]
        return {number: self.committed_at + round(after * 1000) for number, (_, after) in enumerate(steps)}


def ladders() -> str:
    """The text of ladders.toml."""
    found = []
    for name, steps in AFTERS.items():
        lines = "\n".join(f'  {{ channel = "{channel}", after = "{after:.0f}s" }},' for channel, after in steps)
        stop_on = "sent" if name in STOPS_ON_SENT else "resolution"
        found.append(_KIND.format(name=name, stop_on=stop_on, steps=lines))
    return "".join(found)


def draw(number: int, at: int, source: random.Random) -> Ask:
    """The ask of a number."""
    kind = list(AFTERS)[(number // PEOPLE + number) % len(AFTERS)]
    act = Act.NEVER
    if kind not in STOPS_ON_SENT:
        act = source.choices(list(Act), weights=[45, 8, 32, 15])[0]
    last = AFTERS[kind][-1][1]
    after = {
        Act.NEVER: None,
        Act.BEFORE: -0.3,
        Act.BETWEEN: source.uniform(0.1, last) if last else None,
        Act.TOO_LATE: last + 3.0,
    }[act]
    return Ask(number, f"person-{number % PEOPLE:03}", kind, act, at, after)
