"""Judge the demo from outside: what the application committed against what the SMTP and HTTP servers received.

It reads the application's tables and diary and the servers' own records; of Rung it reads nothing. So a fault of the
system cannot hide itself here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from deploy.demo.plan import AFTERS, STOPS_ON_SENT, Act, Person, Plan, Request, Trouble

IN_FLIGHT_MS = 1_500
"""The longest that a stop may take from its commit to the last moment before a call: the relay's poll, two topics, and
a call that had begun. A call that starts later than this after the resolution's commit is a fault, not a race."""
LEAST_MARGIN_MS = 1_000
"""How long before a stop a step must have been due, at the least, for its absence to be a fault. On a slow machine it
is twice the longest that a call of the run came after its time: what was stopped while it waited is not lost."""


class Kind(StrEnum):
    """What may be wrong, in the words of the report."""

    MISSING = "missing"
    AFTER_STOP = "sent after the stop"
    ROLLED_BACK = "sent although rolled back"
    UNASKED = "sent though nobody asked"


@dataclass(frozen=True, slots=True)
class Call:
    """One call as a server received it."""

    key: str
    channel: str
    at: int
    accepted: bool
    """Taken as a new message."""
    repeat: bool = False
    """The server had accepted its key before."""

    @property
    def notification_id(self) -> str:
        """The notification that the key names."""
        return self.key.rpartition(":")[0]

    @property
    def step_no(self) -> int:
        """The step that the key names."""
        return int(self.key.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class Committed:
    """A request whose transaction was committed."""

    request: Request
    notification_id: str
    at: int
    settled_at: int | None = None


@dataclass(slots=True)
class Verdict:
    """What was found; the run passes if there is no fault."""

    committed: int = 0
    calls: int = 0
    accepted: int = 0
    repeats: int = 0
    """Calls with the key of an accepted one: a repeat after a time-out, which a server that honours keys drops."""
    in_flight: int = 0
    """Calls that started after the commit of their resolution, within the race that cannot be closed."""
    slowest_stop_ms: int = 0
    slowest_call_ms: int = 0
    """The longest that the first call of a step which nothing held up came after its time."""
    rolled_back: int = 0
    """Requests whose transaction was rolled back."""
    found: Counter[Kind] = field(default_factory=Counter)
    """How many faults of each kind."""
    faults: list[str] = field(default_factory=list)
    """All of them, one sentence each."""

    def fault(self, kind: Kind, text: str) -> None:
        """Note a fault."""
        self.found[kind] += 1
        self.faults.append(text)


def judge(
    plan: Plan,
    committed: Sequence[Committed],
    rolled_back: Iterable[str],
    stopped: Mapping[str, int],
    calls: Sequence[Call],
) -> Verdict:
    """Compare. `rolled_back` are ids of notifications that never were; `stopped` says when a recipient withdrew
    consent or was erased (milliseconds)."""
    verdict = Verdict(len(committed), len(calls), sum(c.accepted for c in calls))
    by_id: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_id[call.notification_id].append(call)
    never_were = set(rolled_back)
    verdict.rolled_back = len(never_were)
    for identity in never_were & by_id.keys():
        verdict.fault(Kind.ROLLED_BACK, f"{identity}: sent, although its transaction was rolled back")
    known = {c.notification_id for c in committed}
    for identity in by_id.keys() - known - never_were:
        verdict.fault(Kind.UNASKED, f"{identity}: sent, and nobody asked for it")
    verdict.repeats = sum(call.repeat for call in calls)
    verdict.slowest_call_ms = max((_lateness(plan, one, by_id[one.notification_id]) for one in committed), default=0)
    for one in committed:
        person = plan.person(one.request.recipient)
        _judge_one(one, person, by_id.get(one.notification_id, []), stopped.get(person.name), verdict)
    return verdict


def _judge_one(one: Committed, person: Person, calls: Sequence[Call], stopped_at: int | None, verdict: Verdict) -> None:
    for call in calls:
        if one.settled_at is None or call.at <= one.settled_at:
            continue
        late = call.at - one.settled_at
        if one.request.act is Act.BEFORE or late > IN_FLIGHT_MS:
            verdict.fault(Kind.AFTER_STOP, f"{call.key}: called {late} ms after the commit of its resolution")
        else:
            verdict.in_flight += 1
            verdict.slowest_stop_ms = max(verdict.slowest_stop_ms, late)
    if person.erased_at is not None and stopped_at is not None:
        for call in calls:
            if call.at > stopped_at + IN_FLIGHT_MS:
                verdict.fault(Kind.AFTER_STOP, f"{call.key}: called after {person.name} was erased")
    margin_ms = max(LEAST_MARGIN_MS, 2 * verdict.slowest_call_ms)
    for step_no in _missing(one, person, calls, stopped_at, margin_ms):
        verdict.fault(
            Kind.MISSING,
            f"{one.notification_id}:{step_no}: never called ({one.request.kind} for {person.name}, {one.request.act})",
        )


def _lateness(plan: Plan, one: Committed, calls: Sequence[Call]) -> int:
    """How long after its time the latest first call of a notification came, for a person without any trouble."""
    if plan.person(one.request.recipient).trouble is not Trouble.NONE:
        return 0
    afters = [after for _, after in AFTERS[one.request.kind]]
    first: dict[int, int] = {}
    for call in calls:
        first[call.step_no] = min(call.at, first.get(call.step_no, call.at))
    return max((at - one.at - round(afters[step] * 1000) for step, at in first.items()), default=0)


def _missing(
    one: Committed, person: Person, calls: Sequence[Call], stopped_at: int | None, margin_ms: int
) -> list[int]:
    """The steps that had to be called and were not."""
    end = one.settled_at
    if stopped_at is not None and (person.erased_at is not None or one.request.kind == "payment_action_required"):
        end = stopped_at if end is None else min(end, stopped_at)
    called = {call.step_no for call in calls}
    if one.request.kind in STOPS_ON_SENT and any(call.accepted or call.repeat for call in calls):
        return []
    missing = []
    for step_no, (channel, after) in enumerate(AFTERS[one.request.kind]):
        due_ms = one.at + round(after * 1000)
        had_time = end is None or due_ms + margin_ms < end
        if had_time and step_no not in called and not _known_dead(person, channel):
            missing.append(step_no)
    return missing


def _known_dead(person: Person, channel: str) -> bool:
    """A channel that refuses this person for ever is called once, by whichever notification comes first."""
    return (
        person.trouble is Trouble.NOTHING_WORKS
        or (person.trouble is Trouble.PUSH_GONE and channel == "push")
        or (person.trouble is Trouble.MAILBOX_UNKNOWN and channel == "email")
    )
