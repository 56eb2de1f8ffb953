"""What the rules remember of one partition's events: each notification that is open or ended lately, and its steps.

Memory: about 1 kB for each notification that is open, or that ended less than `keep_ended_ms` ago by the partition's
own time. A claim that comes later than that is still found, for then nothing open is known of it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas.reasons import Reason
from schemas.records import DeliveryEvent, EventType
from schemas.topics import DAY_MS

ENDS = frozenset({EventType.RESOLVED, EventType.EXPIRED, EventType.FINISHED, EventType.DEAD, EventType.ERASED})
KEEP_ENDED_MS = DAY_MS
"""How long an ended notification is remembered: as long as the topic of the claims keeps one that may still be read."""
KEY_FREE_MS = 7 * DAY_MS
"""How long after its end a dedup key may begin another notification, whose events have the same ids once more."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One event of `delivery-events`, in its place."""

    event_id: str
    type: EventType
    event: DeliveryEvent
    offset: int


@dataclass(slots=True)
class StepView:
    """One step as its events tell it."""

    channel: str
    due_at: int | None
    claimed_at: int | None = None
    """Of the claim that is out, if one is."""
    claims: int = 0
    open: bool = True
    waiting: bool = False
    """Held back by strict ordering."""
    key: str | None = None


@dataclass(slots=True)
class Life:
    """One notification from its acceptance on. A key that is used anew after its retention has another life."""

    notification_id: str
    recipient: str
    dedup_key: str
    order: int
    """The offset of its acceptance: the place in the order of its partition."""
    expires_at: int | None
    last_at: int
    steps: dict[int, StepView] = field(default_factory=dict)
    ended: EventType | None = None
    ended_at: int = 0
    told: set[int] = field(default_factory=set)
    """Hashes of what identifies its events."""
    overdue_told: bool = False

    @property
    def next_moment(self) -> int:
        """When something has to happen at the latest; if nothing is pending, the moment of its last event."""
        moments = [
            moment
            for step in self.steps.values()
            if step.open and not step.waiting
            for moment in [step.due_at if step.claimed_at is None else step.claimed_at]
            if moment is not None
        ]
        if not any(step.open for step in self.steps.values()):
            moments.append(self.last_at)
        if self.expires_at is not None:
            moments.append(self.expires_at)
        return min(moments, default=self.last_at)


def refused(fact: Fact) -> bool:
    """A request of an unknown kind: its `dead` event ends no notification, for there never was one."""
    return fact.type is EventType.DEAD and fact.event.reason == Reason.UNKNOWN_KIND


class Book:
    """The notifications of one partition, as of the last event that was added."""

    def __init__(self, *, whole: bool, keep_ended_ms: int = KEEP_ENDED_MS) -> None:
        """`whole` says that the partition is read from its very first event on."""
        self.whole = whole
        self._keep_ended_ms = keep_ended_ms
        self._recipients: dict[str, dict[str, Life]] = {}
        self._ended: deque[Life] = deque()
        self.newest_at = 0
        self.begun = 0
        """How many notifications began."""
        self.unnamed: dict[tuple[str, str, int], Fact] = {}
        """Steps that were sent after the end of their notification and are not named by a `too_late` yet."""
        self.repeats: set[int] = set()
        """Offsets of events that the partition holds once more, as `note_repeat` was told."""

    def life(self, fact: Fact) -> Life | None:
        """The notification that an event is about, if it is remembered."""
        return self._recipients.get(fact.event.recipient, {}).get(fact.event.dedup_key)

    def lives(self, recipient: str) -> Iterator[Life]:
        """The notifications of a recipient that are remembered."""
        yield from self._recipients.get(recipient, {}).values()

    def open(self) -> Iterator[Life]:
        """All that has not ended."""
        for lives in self._recipients.values():
            for life in lives.values():
                if life.ended is None:
                    yield life

    def __len__(self) -> int:
        """How many notifications are remembered."""
        return sum(map(len, self._recipients.values()))

    def note_repeat(self, fact: Fact) -> None:
        """Remember that an event was a repeat, so that nobody counts it."""
        self.repeats.add(fact.offset)

    def add(self, fact: Fact) -> None:
        """Take an event in; the events of a partition come in the order of their offsets."""
        event = fact.event
        self.newest_at = max(self.newest_at, event.at)
        if fact.type is EventType.ACCEPTED:
            self._begin(fact)
        life = self.life(fact)
        if life is not None and not refused(fact):
            life.told.add(identity(fact))
            life.last_at = event.at
            life.overdue_told = False
            if event.step_no is not None:
                self._step(life, event.step_no, fact)
            if fact.type in ENDS and life.ended is None:
                life.ended, life.ended_at = fact.type, event.at
                self._ended.append(life)
        self._forget()

    def _begin(self, fact: Fact) -> None:
        event = fact.event
        self.begun += 1
        plan = {step.step_no: StepView(step.channel, step.due_at) for step in event.steps or ()}
        life = Life(
            str(event.notification_id),
            event.recipient,
            event.dedup_key,
            fact.offset,
            event.expires_at,
            event.at,
            plan,
        )
        self._recipients.setdefault(event.recipient, {})[event.dedup_key] = life

    def _step(self, life: Life, step_no: int, fact: Fact) -> None:
        event = fact.event
        step = life.steps.get(step_no)
        if step is None:
            step = life.steps[step_no] = StepView(event.channel or "", None, open=False)
        if fact.type in ATTEMPTS and step.key is None:
            step.key = event.key
        match fact.type:
            case EventType.STEP_CLAIMED:
                step.claims += 1
                step.claimed_at, step.open, step.waiting = event.at, True, False
            case EventType.STEP_SENT:
                step.claimed_at, step.open = None, False
                if life.ended is not None and life.ended is not EventType.DEAD:
                    self.unnamed[event.recipient, event.dedup_key, step_no] = fact
            case EventType.STEP_FAILED | EventType.STEP_UNKNOWN:
                step.claimed_at, step.due_at, step.open = None, event.next_due_at, event.next_due_at is not None
            case EventType.STEP_DEFERRED:
                step.waiting = event.next_due_at is None
                step.claimed_at = None
                step.due_at = step.due_at if event.next_due_at is None else event.next_due_at
            case EventType.STEP_PROMOTED:
                step.due_at = event.next_due_at
            case EventType.TOO_LATE:
                self.unnamed.pop((event.recipient, event.dedup_key, step_no), None)
            case (
                EventType.STEP_REJECTED | EventType.STEP_SUPPRESSED | EventType.STEP_DELIVERED | EventType.STEP_BOUNCED
            ):
                step.claimed_at, step.open = None, False
            case _:
                pass

    def _forget(self) -> None:
        while self._ended and self._ended[0].ended_at < self.newest_at - self._keep_ended_ms:
            life = self._ended.popleft()
            lives = self._recipients.get(life.recipient, {})
            if lives.get(life.dedup_key) is life:
                del lives[life.dedup_key]
                if not lives:
                    del self._recipients[life.recipient]


ATTEMPTS = frozenset(
    {
        EventType.STEP_CLAIMED,
        EventType.STEP_SENT,
        EventType.STEP_REJECTED,
        EventType.STEP_FAILED,
        EventType.STEP_UNKNOWN,
    }
)
"""Events of an attempt; each carries the attempt's key."""
TOLD_AGAIN = frozenset({EventType.DUPLICATE, EventType.CONFLICT})
"""Their id names the request, and the relay may publish a request again, long after the processor forgot that it has
seen it. Only together with its time is such an event the same one."""
RECEIPTS = frozenset({EventType.STEP_DELIVERED, EventType.STEP_BOUNCED})
"""A provider may send a receipt any number of times."""


def identity(fact: Fact) -> int:
    """A 64-bit mark of what makes an event this event and no other."""
    return hash((fact.event_id, fact.event.at) if fact.type in TOLD_AGAIN else fact.event_id)
