"""Tell the delivery events as a log that a person reads, and keep what each notification came to.

It reads the public `delivery-events` alone, as any reader of that topic could. A ladder of one step is told without
its channel; what ends in the notification's death is told as that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from schemas.reasons import Reason
from schemas.records import DeliveryEvent, EventType

_ENDS = {
    EventType.RESOLVED: "resolved",
    EventType.TOO_LATE: "resolved",
    EventType.EXPIRED: "expired",
    EventType.FINISHED: "finished",
    EventType.DEAD: "dead",
    EventType.ERASED: "erased",
}
_FINISHED_AS = {Reason.STOPPED_BY_SENT: "sent", Reason.STOPPED_BY_DELIVERED: "delivered"}


@dataclass(slots=True)
class Line:
    """One line of the log. `if_dead` is what it says instead if the notification dies of it."""

    at: int
    label: str
    text: str
    if_dead: str = ""


@dataclass(slots=True)
class StepView:
    """What is known of a step from its events."""

    channel: str
    due_at: int
    state: str = "pending"
    attempts: int = 0


@dataclass(slots=True)
class NotificationView:
    """What is known of a notification from its events."""

    label: str
    recipient: str
    state: str = "open"
    steps: list[StepView] = field(default_factory=list)
    last_error: str = ""

    @property
    def attempts(self) -> int:
        """Provider calls that were made or may have been made."""
        return sum(step.attempts for step in self.steps)


class Story:
    """Folds delivery events, in their order, into lines and views."""

    def __init__(self, start: int) -> None:
        self._day = _utc(start).date()
        self._lines: list[Line] = []
        self.views: dict[tuple[str, str], NotificationView] = {}
        """By recipient and dedup key, in the order of acceptance."""
        self.labels: dict[tuple[str, str], str] = {}
        """Names that a scenario gives, to be filled in before the acceptance is told."""

    @property
    def lines(self) -> list[Line]:
        """The log by time, then by label; what happened to one notification at one moment stays in its order."""
        return sorted(self._lines, key=lambda line: (line.at, line.label))

    @property
    def open(self) -> bool:
        """Whether a ladder is still running."""
        return any(view.state == "open" for view in self.views.values())

    def clock(self, at: int) -> str:
        """A moment as `HH:MM:SS` UTC, with the date where it is not the start's."""
        moment = _utc(at)
        text = f"{moment:%H:%M:%S}" + (f".{at % 1000:03d}" if at % 1000 else "")
        return text if moment.date() == self._day else f"{moment:%Y-%m-%d} {text}"

    def label(self, recipient: str, dedup_key: str) -> str | None:
        """How the log calls an accepted notification; None if there is none."""
        view = self.views.get((recipient, dedup_key))
        return None if view is None else view.label

    def tell(self, kind: EventType, event: DeliveryEvent) -> None:
        """Add one event."""
        key = (event.recipient, event.dedup_key)
        if kind is EventType.ACCEPTED:
            self._accepted(key, event)
        view = self.views.get(key)
        # A refused request, and a repeat of an accepted one, are told where the request is told.
        if view is None or kind in {EventType.ACCEPTED, EventType.DUPLICATE, EventType.CONFLICT}:
            return
        if event.step_no is not None and kind not in _ENDS:
            _Step(self, view, view.steps[event.step_no], event).tell(kind)
        else:
            self._ended(kind, view, event)

    def say(self, view: NotificationView, event: DeliveryEvent, text: str, if_dead: str = "") -> None:
        """Add a line."""
        self._lines.append(Line(event.at, view.label, text, if_dead))

    def _accepted(self, key: tuple[str, str], event: DeliveryEvent) -> None:
        label = self.labels.get(key) or f"ntf_{len(self.views) + 1:03d}"
        view = self.views[key] = NotificationView(label, event.recipient)
        view.steps = [StepView(step.channel, step.due_at) for step in event.steps or ()]
        if len(view.steps) > 1:
            plan = ", ".join(f"{step.channel} at {self.clock(step.due_at)}" for step in view.steps)
            self.say(view, event, f"accepted: {plan}")

    def _ended(self, kind: EventType, view: NotificationView, event: DeliveryEvent) -> None:
        if kind is EventType.TOO_LATE and event.reason == Reason.IN_FLIGHT:
            self.say(view, event, f"too late for {event.channel}: its call was in flight")
            return
        view.state = _ENDS[kind]
        match kind:
            case EventType.RESOLVED:
                early = " before it came" if event.reason == Reason.RESOLVED_EARLY else f" at depth {event.depth}"
                self.say(view, event, f"resolved ({event.detail}){early}")
            case EventType.TOO_LATE:
                self.say(
                    view, event, f"resolved ({event.detail}) too late: the ladder had ended at depth {event.depth}"
                )
            case EventType.FINISHED:
                self._finished(view, event)
            case EventType.DEAD:
                self._died(view, event)
            case _:
                self.say(view, event, view.state)

    def _finished(self, view: NotificationView, event: DeliveryEvent) -> None:
        view.state = next((name for reason, name in _FINISHED_AS.items() if reason == event.reason), "finished")
        if len(view.steps) > 1:
            self.say(view, event, f"finished: {words(event.reason)}")

    def _died(self, view: NotificationView, event: DeliveryEvent) -> None:
        last = next((line for line in reversed(self._lines) if line.label == view.label), None)
        if last is not None and last.at == event.at and last.if_dead:
            last.text = last.if_dead
        else:
            self.say(view, event, f"dead ({words(event.reason)})")


class _Step:
    """Tells one event of a step."""

    def __init__(self, story: Story, view: NotificationView, step: StepView, event: DeliveryEvent) -> None:
        self._story, self._view, self._step, self._event = story, view, step, event
        self._channel = f"{step.channel} " if len(view.steps) > 1 else ""
        self._attempt = f"{self._channel}attempt {event.attempt}: "

    def tell(self, kind: EventType) -> None:
        tellers: dict[EventType, Callable[[], None]] = {
            EventType.STEP_CLAIMED: self._claimed,
            EventType.STEP_SENT: self._sent,
            EventType.STEP_REJECTED: self._rejected,
            EventType.STEP_FAILED: self._failed,
            EventType.STEP_UNKNOWN: self._unknown,
            EventType.STEP_SUPPRESSED: self._suppressed,
            EventType.STEP_DEFERRED: self._deferred,
            EventType.STEP_PROMOTED: self._promoted,
            EventType.STEP_DELIVERED: self._delivered,
            EventType.STEP_BOUNCED: self._bounced,
        }
        tellers[kind]()

    def _say(self, text: str, if_dead: str = "") -> None:
        self._story.say(self._view, self._event, text, if_dead)

    def _answered(self, state: str, error: str) -> None:
        self._step.state = state
        self._view.last_error = error

    def _claimed(self) -> None:
        self._step.state = "claimed"
        # Counted here and not by the answers: of a claim that nobody answers, the call may have been made.
        self._step.attempts = max(self._step.attempts, self._event.attempt or 0)
        if self._event.reason != Reason.DUE:
            self._say(f"{self._channel}attempt {self._event.attempt} claimed again: {words(self._event.reason)}")

    def _sent(self) -> None:
        self._answered("sent", "")
        self._say(f"{self._attempt}sent")

    def _rejected(self) -> None:
        error = f"permanent failure: {answer(self._event.detail)}"
        self._answered("rejected", error)
        self._say(f"{self._attempt}rejected ({error})", f"{self._attempt}dead ({error})")

    def _failed(self) -> None:
        error, attempts = answer(self._event.detail), self._event.attempt
        again = self._event.next_due_at
        self._answered("failed" if again is None else "pending", error)
        if again is not None:
            why = ", as it asked" if self._event.reason == Reason.RETRY_AFTER else ""
            self._say(f"{self._attempt}{error}, retry at {self._story.clock(again)}{why}")
        elif self._event.reason == Reason.ATTEMPTS_EXHAUSTED:
            after = f"after {attempts} attempts ({error})"
            self._say(f"{self._attempt}failed {after}", f"{self._attempt}dead {after}")
        else:
            self._say(f"{self._attempt}{error}, no retry: {words(self._event.reason)}")

    def _unknown(self) -> None:
        error, again = answer(self._event.detail), self._event.next_due_at
        self._answered("held" if again is None else "pending", error)
        told = f"{self._attempt}unknown ({error})"
        if again is None:
            self._say(f"{told}, not sent again: {words(self._event.reason)}")
        else:
            how = "looked up" if self._event.reason == Reason.LOOKUP else "sent again"
            self._say(f"{told}, {how} with the same key at {self._story.clock(again)}")

    def _suppressed(self) -> None:
        self._step.state = "suppressed"
        why = words(self._event.reason)
        self._say(f"{self._channel}suppressed: {why}", f"{self._channel}dead ({why})")

    def _deferred(self) -> None:
        self._step.state = "pending"
        to = self._event.next_due_at
        if to is None:
            self._say(f"{self._channel}waits for an earlier notification")
            return
        self._step.due_at = to
        self._say(f"{self._channel}moved from {self._due()} to {self._story.clock(to)}: {words(self._event.reason)}")

    def _promoted(self) -> None:
        self._step.due_at = self._event.at
        self._say(f"{self._channel}promoted from {self._due()} to now: {words(self._event.detail or '')}")

    def _delivered(self) -> None:
        self._step.state = "delivered"
        self._say(f"{self._channel}delivered")

    def _bounced(self) -> None:
        error = f"bounced: {answer(self._event.detail)}"
        self._step.state = "rejected"
        self._view.last_error = error
        self._say(f"{self._channel}{error}", f"{self._channel}dead ({error})")

    def _due(self) -> str:
        return self._story.clock(self._event.due_at or self._event.at)


def words(code: str) -> str:
    """A reason's code as words."""
    return code.replace("_", " ")


def answer(detail: str | None) -> str:
    """A provider's answer as words: `http_503` becomes `provider returned 503`."""
    text = detail or "no reason given"
    return f"provider returned {text.removeprefix('http_')}" if text.startswith("http_") else text


def _utc(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)
