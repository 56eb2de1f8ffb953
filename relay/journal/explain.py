"""What happened to one notification and why, in plain words: standing, steps, timeline, and what is next. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime
from string import Formatter

import msgspec

from relay.journal.status import Happened, Status, StepStatus, fold
from relay.journal.words import ALSO, ANSWER, WHAT, why
from schemas.reasons import Reason
from schemas.records import DeliveryEvent, EventType
from schemas.state import StepState

CALENDAR_END_MS = 253_402_300_800_000
"""The year 10000, for which there are no words."""

CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""Made visible in every line: a key or a code from outside may hold what would steer a terminal."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One event in words."""

    at: int
    step_no: int | None
    """Counted from 0; None where it is about the whole notification."""
    channel: str | None
    what: str
    reason: str
    """The decision's named reason."""
    text: str
    """What happened and why, in one sentence."""
    attempt: int | None = None
    key: str | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The whole story of one notification."""

    status: Status
    summary: str
    """How it stands, in one sentence."""
    steps: tuple[str, ...]
    """One line per step: its standing, when it was due, its attempts and its key."""
    timeline: tuple[Line, ...]
    next: str
    """What is due next, or that nothing is."""

    def lines(self) -> list[str]:
        """The story as lines of plain text."""
        return [*head(self.status, self.summary), "", *self.steps, "", *_dated(self.timeline), "", f"next: {self.next}"]


def explanation(events: Sequence[Happened]) -> Explanation | None:
    """Explain these events of one notification, in their order; None without any."""
    status = fold(events)
    if status is None:
        return None
    return Explanation(
        status=status,
        summary=_summary(status).translate(CONTROLS),
        steps=tuple(_step_text(step, status).translate(CONTROLS) for step in status.steps),
        timeline=tuple(_line(happened) for happened in events),
        next=_next(status).translate(CONTROLS),
    )


def head(status: Status, summary: str) -> list[str]:
    """The lines above the story: which notification, how it stands, and how to read times and steps."""
    lines = [
        f"{status.kind} for {status.recipient}, dedup key {status.dedup_key}",
        f"notification {status.notification_id}",
        summary,
        "times are UTC, steps are counted from 0",
    ]
    return [line.translate(CONTROLS) for line in lines]


def clock(at: int) -> str:
    """The time of day of a moment, `HH:MM:SS.mmm`, UTC."""
    return _moment(at).strftime("%H:%M:%S.") + f"{at % 1000:03d}"


def day(at: int) -> str:
    """The date of a moment, UTC."""
    return _moment(at).strftime("%Y-%m-%d")


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at // 1000, UTC)


def _when(at: int | None, beside: int | None, otherwise: str = "its time") -> str:
    """A moment, with its date unless that is the date of `beside`."""
    if at is None:
        return otherwise
    if not 0 <= at < CALENDAR_END_MS:
        return f"{at} ms"
    return clock(at) if beside is not None and day(at) == day(beside) else f"{day(at)} {clock(at)}"


def _line(happened: Happened) -> Line:
    kind, e = happened.type, happened.event
    return Line(
        at=e.at,
        step_no=e.step_no if kind.value.startswith("rung.step.") else None,
        channel=(e.channel or "").translate(CONTROLS) if kind.value.startswith("rung.step.") else None,
        what=WHAT[kind],
        reason=e.reason,
        text=_sentence(kind, e).translate(CONTROLS),
        attempt=e.attempt,
        key=e.key,
    )


def _sentence(kind: EventType, e: DeliveryEvent) -> str:
    attempt = f" (attempt {e.attempt})" if e.attempt is not None else ""
    parts = [part for part in (_answer(kind, e), _filled(why(e.reason), e), _more(kind, e)) if part]
    return f"{WHAT[kind]}{attempt}: " + "; ".join(parts)


def _answer(kind: EventType, e: DeliveryEvent) -> str:
    if kind not in ANSWER:
        return ""
    took = f" in {e.latency_ms} ms" if e.latency_ms is not None else ""
    reference = f" (reference {e.provider_ref})" if e.provider_ref else ""
    return _filled(ANSWER[kind], e) + took + reference


def _more(kind: EventType, e: DeliveryEvent) -> str:
    """What belongs to the event and not to its reason."""
    match kind:
        case EventType.ACCEPTED:
            plan = (f"step {s.step_no} {s.channel} at {_when(s.due_at, e.at)}" for s in e.steps or ())
            return ", ".join(plan) + f"; it expires at {_when(e.expires_at, e.at, 'no time')}"
        case EventType.RESOLVED | EventType.TOO_LATE:
            word = f'the business says "{e.detail}", and ' if e.detail else ""
            return word + _left(e.depth)
        case EventType.FINISHED | EventType.ERASED:
            return _left(e.depth)
        case EventType.STEP_PROMOTED if e.detail and e.detail in set(Reason):
            return f"of that step: {why(e.detail)}"
        case EventType.STEP_SUPPRESSED if e.detail:
            return ALSO.get(e.detail, f"the last answer was {e.detail}")
        case _:
            return ""


def _left(depth: int | None) -> str:
    steps = "step" if depth == 1 else "steps"
    return f"{depth or 'no'} {steps} had left"


def _filled(template: str, e: DeliveryEvent) -> str:
    return _fill(template, _when(e.due_at, e.at), _when(e.next_due_at, e.at), e.provider, e.detail)


def _fill(template: str, due: str, next_due: str, provider: str | None, detail: str | None) -> str:
    values = {
        "due": due,
        "next_due": next_due,
        "provider": provider or "the provider",
        "detail": detail or "no code",
    }
    return Formatter().vformat(template, (), values)


def _summary(status: Status) -> str:
    accepted = "accepted at " + _when(status.accepted_at, None, "a time that the journal does not hold")
    if status.status == "open":
        return f"open: {accepted}, expires at {_when(status.expires_at, status.accepted_at, 'no time')}"
    ended = f"{status.status} at {_when(status.ended_at, None)}"
    word = f' ("{status.resolution}")' if status.status == "resolved" and status.resolution else ""
    late = f"; the person acted later, at {_when(status.resolved_late_at, None)}" if status.resolved_late_at else ""
    return f"{ended}{word}: {accepted}, {_left(status.depth)}{late}"


def _step_text(step: StepStatus, status: Status) -> str:
    beside = status.accepted_at
    due = f"due at {_when(step.due_at, beside)}"
    if step.planned_at is not None and step.planned_at != step.due_at:
        due += f" (planned for {_when(step.planned_at, beside)})"
    tries = {0: "no attempt", 1: "1 attempt"}.get(step.attempts, f"{step.attempts} attempts")
    receipt = f", receipt {step.receipt}" if step.receipt else ""
    key = f", key {step.key}" if step.key else ""
    because = f" because {_bare(step)}" if step.state in _EXPLAINED else ""
    return f"step {step.step_no} {step.channel}: {step.state.value}{because}, {due}, {tries}{receipt}{key}"


_EXPLAINED = frozenset({StepState.SUPPRESSED, StepState.FAILED, StepState.HELD})


def _bare(step: StepStatus) -> str:
    """Of a step that was concluded without being sent: why."""
    due = _when(step.due_at, step.planned_at)
    return _fill(why(step.reason or Reason.LADDER_ENDED), due, due, step.provider, step.detail)


def _next(status: Status) -> str:
    if status.status != "open":
        return "nothing; the notification has ended"
    waiting = [s for s in status.steps if s.state is StepState.CLAIMED]
    parts = [f"step {s.step_no} {s.channel} is in a worker's hands" for s in waiting]
    soonest = [s for s in status.steps if s.state is StepState.PENDING and s.due_at == status.next_due_at]
    parts += [f"step {s.step_no} {s.channel} is due at {_when(s.due_at, None)}" for s in soonest]
    expiry = f"it expires at {_when(status.expires_at, None, 'no time')}" if status.expires_at else ""
    return ", ".join([*parts, expiry] if expiry else parts) or "not known; the journal holds only a part of it"


def _dated(timeline: Sequence[Line]) -> list[str]:
    """The timeline with a line for each new date."""
    lines: list[str] = []
    last = ""
    for entry in timeline:
        if day(entry.at) != last:
            last = day(entry.at)
            lines.append(last)
        step = "" if entry.step_no is None else f"step {entry.step_no} {entry.channel}  "
        lines.append(f"{clock(entry.at)}  {step}{entry.text}")
    return lines
