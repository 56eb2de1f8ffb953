"""What must hold, one pure function for each rule: decoded facts in, violations out.

The functions of `PER_EVENT` look at one event and at the book as it was before that event; the others look at what was
gathered. None reads a clock, a topic or a table.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from relay.audit.book import ATTEMPTS, KEY_FREE_MS, RECEIPTS, Book, Fact, Life, identity, refused
from relay.audit.ledger import Standing
from schemas.reasons import Reason
from schemas.records import DeliveryEvent, EventType
from schemas.topics import CLAIM_DEADLINE_MS, CLAIM_GRACE_MS


class Rule(StrEnum):
    """The rules; the values of the metric's label."""

    OPEN_OVERDUE = "open_overdue"
    AFTER_STOP = "after_stop"
    OTHER_KEY = "other_key"
    KEY_FORM = "key_form"
    ORDER = "order"
    OUTBOX_UNANSWERED = "outbox_unanswered"
    COUNTERS = "counters"
    JOURNAL_DIFFERS = "journal_differs"
    REPEATED_EVENT = "repeated_event"


@dataclass(frozen=True, slots=True)
class Violation:
    """One promise that was not kept. The detail holds ids, names and numbers, never a body or an address."""

    rule: Rule
    notification_id: str
    """Empty where it is about no single notification."""
    detail: str


def open_overdue(book: Book, now: int, tolerance_ms: int) -> Iterator[Violation]:
    """Each accepted notification has ended, or has a next moment that is not overdue at `now`.

    The next moment is the earliest of: the due time of a pending step (as planned, deferred, promoted or to be tried
    again), the time of a claim that is out, and the expiry. A step that strict ordering holds back has none, and the
    expiry bounds it. Overdue means: past by the claim deadline, its grace (schemas/topics.py) and `tolerance_ms`. Each
    is told once until something happens to the notification.
    """
    late = CLAIM_DEADLINE_MS + CLAIM_GRACE_MS + tolerance_ms
    for life in book.open():
        if not life.overdue_told and life.next_moment + late < now:
            life.overdue_told = True
            detail = f"open, and what was due at {life.next_moment} has not happened at {now}"
            yield Violation(Rule.OPEN_OVERDUE, life.notification_id, detail)


def after_stop(book: Book, fact: Fact) -> Iterator[Violation]:
    """No step is claimed after the stop of its notification was recorded: resolved, expired, erased, finished, dead.

    Before and after go by the order of the partition. Where the partition is read from its first event on, a claim of a
    notification of which nothing is known is one too: it ended long ago or was never accepted.
    """
    if fact.type is not EventType.STEP_CLAIMED:
        return
    life = book.life(fact)
    if life is None:
        if book.whole:
            yield _about(Rule.AFTER_STOP, fact, "claimed, and it ended long before or was never accepted")
    elif life.ended is not None:
        yield _about(Rule.AFTER_STOP, fact, f"claimed after {_short(life.ended)} at {life.ended_at}")


def unnamed_after_stop(book: Book, now: int, tolerance_ms: int) -> Iterator[Violation]:
    """What was sent after a stop, because its call was in flight, is named by a `too_late` event.

    The two are written together; `tolerance_ms` covers a reader that stopped between them. A notification that had died
    is no exception to the rule but to the event: nothing had told the person, so nothing came too late.
    """
    for place, fact in list(book.unnamed.items()):
        if fact.event.at + tolerance_ms <= now:
            del book.unnamed[place]
            yield _about(Rule.AFTER_STOP, fact, "sent after its stop, and no too_late event names it")


def other_key(book: Book, fact: Fact) -> Iterator[Violation]:
    """All attempts at one step of one notification (by recipient and dedup key) have one key."""
    life = book.life(fact)
    if fact.type not in ATTEMPTS or life is None or fact.event.step_no is None:
        return
    step = life.steps.get(fact.event.step_no)
    if step is not None and step.key is not None and fact.event.key != step.key:
        yield _about(Rule.OTHER_KEY, fact, f"attempted under {fact.event.key!r} and before under {step.key!r}")


def key_form(_: Book, fact: Fact) -> Iterator[Violation]:
    """The key of every attempt is `notification_id:step_no`."""
    if fact.type in ATTEMPTS and fact.event.key != f"{fact.event.notification_id}:{fact.event.step_no}":
        yield _about(Rule.KEY_FORM, fact, f"its key is {fact.event.key!r}")


def order(book: Book, fact: Fact) -> Iterator[Violation]:
    """First attempts that are due together, of one recipient on one channel, start in the order of acceptance.

    At the first claim of a step, no notification that was accepted earlier has a step on that channel that is pending,
    was never claimed and is due by then. Its due time is the one last told: planned, deferred by quiet hours, or
    promoted. A retry may be overtaken (its step was claimed before), and so may a step that strict ordering holds back.
    """
    life = book.life(fact)
    if fact.type is not EventType.STEP_CLAIMED or life is None or fact.event.step_no is None:
        return
    own = life.steps.get(fact.event.step_no)
    if own is None or own.claims:
        return
    for earlier in book.lives(fact.event.recipient):
        if earlier.order < life.order and earlier.ended is None:
            yield from _overtaken(fact, earlier)


def _overtaken(fact: Fact, earlier: Life) -> Iterator[Violation]:
    for number, step in earlier.steps.items():
        pending = step.open and not step.claims and not step.waiting and step.due_at is not None
        if pending and step.channel == fact.event.channel and (step.due_at or 0) <= fact.event.at:
            detail = f"claimed before {earlier.notification_id}:{number}, accepted earlier and due at {step.due_at}"
            yield _about(Rule.ORDER, fact, detail)


def repeated_event(book: Book, fact: Fact) -> Iterator[Violation]:
    """The topic holds no event twice.

    The ids are derived, so what was decided twice has one id. A dedup key that is used anew after its retention may
    give the ids of its first notification again, and a refused request (unknown kind) may be put back any number of
    times; these are other events. Of events whose id does not say when (`TOLD_AGAIN`) the time must be the same too.
    Receipts repeat as the provider likes.
    """
    life = book.life(fact)
    if life is None or refused(fact) or fact.type in RECEIPTS or identity(fact) not in life.told:
        return
    if fact.type is EventType.ACCEPTED and life.ended is not None and fact.event.at >= life.ended_at + KEY_FREE_MS:
        return
    yield _about(Rule.REPEATED_EVENT, fact, f"event {fact.event_id} is in the topic once more at offset {fact.offset}")


PER_EVENT: tuple[Callable[[Book, Fact], Iterator[Violation]], ...] = (
    after_stop,
    other_key,
    key_form,
    order,
    repeated_event,
)


def look(book: Book, fact: Fact) -> list[Violation]:
    """Hold the next event of a partition against all rules about single events, then take it into the book."""
    found = [violation for rule in PER_EVENT for violation in rule(book, fact)]
    if any(violation.rule is Rule.REPEATED_EVENT for violation in found):
        book.note_repeat(fact)
    else:
        book.add(fact)
    return found


def outbox_unanswered(rows: Iterable[Standing], settle_ms: int) -> Iterator[Violation]:
    """Every request committed to the outbox before the watermark is accepted, a duplicate, a conflict, or dead.

    `rows` are the requests without such an event. The watermark: the relay's cursor shows the row as published; after
    that the end of `notifications` was looked up; the processor committed its offsets up to there; and after that the
    events were read to their end. What is past it has no excuse. Another row counts when it was visible for
    `settle_ms`, whoever keeps it waiting. Not a violation is a row that was set aside by name: in `rung.outbox_dead` or
    in `dead-letters`. Resolutions, profiles and erasures need no event.
    """
    for row in rows:
        if row.set_aside or not ((row.published and row.passed) or row.waited_ms >= settle_ms):
            continue
        where = "passed by the processor" if row.passed else "not processed"
        what = f"published, {where} and not answered" if row.published else "not published"
        detail = f"outbox row {row.seq} of {row.created_at}: {what} after {row.waited_ms} ms"
        yield Violation(Rule.OUTBOX_UNANSWERED, row.notification_id, detail)


@dataclass(frozen=True, slots=True)
class Stored:
    """An event as one of the two places holds it."""

    partition: int
    offset: int
    event_id: str
    at: int
    type: str
    notification_id: str = field(compare=False, default="")


def journal_differs(
    topic: Iterable[Stored], journal: Iterable[Stored], holds: Callable[[Stored], bool]
) -> Iterator[Violation]:
    """The journal holds every event of the topic once, at its place, and nothing else.

    Both come in the order of their offsets, and both are read to their ends: over one partition, between two offsets
    that both have reached, and within the retention of both. `holds` says whether the journal has an event at another
    place: then the topic holds it twice, which is another rule's matter.
    """
    rows = iter(journal)
    row = next(rows, None)
    for event in topic:
        while row is not None and row.offset < event.offset:
            yield _extra(row)
            row = next(rows, None)
        matched = False
        while row is not None and row.offset == event.offset:
            if matched or row != event:
                yield _extra(row)
            else:
                matched = True
            row = next(rows, None)
        if not matched and not holds(event):
            place = f"{event.partition}@{event.offset}"
            yield Violation(
                Rule.JOURNAL_DIFFERS, event.notification_id, f"event {event.event_id} of {place} is missing"
            )
    while row is not None:
        yield _extra(row)
        row = next(rows, None)


def _extra(row: Stored) -> Violation:
    place = f"{row.partition}@{row.offset}"
    detail = f"row {row.event_id} at {row.at} is no event of the topic at {place}"
    return Violation(Rule.JOURNAL_DIFFERS, row.notification_id, detail)


@dataclass(slots=True)
class KindCount:
    """The counters of one kind that people steer by."""

    concluded: int = 0
    cancelled: int = 0
    """Of these, concluded without a call."""
    depths: Counter[int] = field(default_factory=Counter)
    """Escalation depth at which people acted to number of notifications."""

    def add(self, type_: EventType, event: DeliveryEvent) -> None:
        """Count an event."""
        match type_:
            case EventType.STEP_SENT | EventType.STEP_REJECTED:
                self.concluded += 1
            case EventType.STEP_SUPPRESSED:
                self.concluded += 1
                self.cancelled += 1
            case EventType.STEP_FAILED if event.reason == Reason.ATTEMPTS_EXHAUSTED:
                self.concluded += 1
            case EventType.STEP_UNKNOWN if event.next_due_at is None:
                self.concluded += 1
            case EventType.RESOLVED:
                self.depths[event.depth or 0] += 1
            case EventType.TOO_LATE if event.reason == Reason.ALREADY_ENDED:
                self.depths[event.depth or 0] += 1
            case _:
                pass

    def minus(self, other: "KindCount") -> "KindCount":
        """What was counted since `other`."""
        depths = Counter({d: n - other.depths[d] for d, n in self.depths.items() if n != other.depths[d]})
        return KindCount(self.concluded - other.concluded, self.cancelled - other.cancelled, depths)


Counts = Mapping[str, KindCount]
"""Kind to its counters."""
NOTHING = KindCount()


def counters(recounted: Counts, told: Counts, by: str, *, exact_depths: bool = True) -> Iterator[Violation]:
    """Escalation and cancellation counters equal a recount of the events, kind by kind.

    `by` names who told the other numbers. Without `exact_depths` only the number and the sum of the escalation depths
    are compared, for a histogram's buckets do not tell more.
    """
    for kind in sorted({*recounted, *told}):
        mine, theirs = recounted.get(kind, NOTHING), told.get(kind, NOTHING)
        pairs = {
            "concluded steps": (mine.concluded, theirs.concluded),
            "cancelled steps": (mine.cancelled, theirs.cancelled),
            "people who acted": (mine.depths.total(), theirs.depths.total()),
            "sum of escalation depths": (_sum(mine.depths), _sum(theirs.depths)),
        }
        if exact_depths and +mine.depths != +theirs.depths:
            pairs["escalation depths"] = (hash(frozenset(mine.depths.items())), hash(frozenset(theirs.depths.items())))
        for what, (counted, claimed) in pairs.items():
            if counted != claimed:
                numbers = "differ" if what == "escalation depths" else f"are {counted}, and {by} says {claimed}"
                yield Violation(Rule.COUNTERS, "", f"{kind}: {what} {numbers}")


def _sum(depths: Counter[int]) -> int:
    return sum(depth * number for depth, number in depths.items())


def _about(rule: Rule, fact: Fact, detail: str) -> Violation:
    where = "" if fact.event.step_no is None else f"step {fact.event.step_no} "
    return Violation(rule, str(fact.event.notification_id), f"{where}{_short(fact.type)} at {fact.event.at}: {detail}")


def _short(kind: EventType) -> str:
    return kind.value.removeprefix("rung.")
