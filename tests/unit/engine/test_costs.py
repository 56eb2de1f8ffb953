"""What a notification costs, in numbers that no machine changes: records written, bytes of state, bytes of deliveries.

The bounds are today's figures and a little room. A change that needs more of something says so by changing them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest

from schemas import records as r
from schemas.records import OutcomeKind
from schemas.topics import DELAYS, DELIVERIES, DELIVERY_EVENTS, DUE, NOTIFICATIONS, OUTCOMES, RESOLUTIONS
from tests.benchmarks.workload import EPOCH_MS, Player, Written, answer, notify, of_topic, opened, recipient_name

ADA = recipient_name(1)
_DELAY_TOPICS = frozenset(topic.name for topic in DELAYS)


class Life:
    """One recipient's notification, played through the processor's own code."""

    def __init__(self) -> None:
        self.player = Player(partitions=4)
        self.written: list[Written] = []
        self.written += opened(self.player, ADA)

    def claimed(self) -> r.Delivery:
        """The claim that was issued last."""
        last = list(of_topic(self.written, DELIVERIES))[-1]
        assert last.value is not None
        return msgspec.json.decode(last.value, type=r.Delivery)

    def answered(self, kind: OutcomeKind = OutcomeKind.SENT, after_ms: int = 50) -> None:
        """The provider's word about that claim."""
        self.player.now += after_ms
        sent = answer(list(of_topic(self.written, DELIVERIES))[-1], self.player.now)
        outcome = msgspec.structs.replace(sent, outcome=kind)
        self.written.append(self.player.play(OUTCOMES, outcome, f"{kind}-{len(self.written)}"))

    def woken(self) -> None:
        """The wake-up that was asked for last, at its moment."""
        last = [o for one in self.written for o in one.outputs if o.topic.name in _DELAY_TOPICS][-1]
        assert last.value is not None
        due = msgspec.json.decode(last.value, type=r.Due)
        self.player.now = max(self.player.now, due.due_at)
        self.written.append(self.player.play(DUE, due, f"due-{len(self.written)}"))

    def resolved(self) -> None:
        """The person acts a minute later."""
        self.player.now += 60_000
        resolve = r.Resolve(recipient=ADA, dedup_key="invoice-0", resolution="paid")
        self.written.append(self.player.play(RESOLUTIONS, resolve, "resolve"))

    def records(self) -> dict[str, int]:
        """Records by topic, of the notification's whole life; the profile's own is left out."""
        counts = dict.fromkeys(("events", "deliveries", "wake-ups", "states"), 0)
        for one in self.written[1:]:
            counts["states"] += one.state is not None
            for output in one.outputs:
                name = output.topic.name
                counts["wake-ups"] += name in _DELAY_TOPICS
                counts["events"] += output.topic is DELIVERY_EVENTS
                counts["deliveries"] += output.topic is DELIVERIES
        return counts


def acted_at_once() -> Life:
    """The person acts after the first step."""
    life = Life()
    life.answered()
    life.resolved()
    return life


def climbed() -> Life:
    """Every step is sent, and nobody acts."""
    life = Life()
    life.answered()
    for _ in range(2):
        while not _claims(life.written[-1]):
            life.woken()
        life.answered()
    return life


def retried() -> Life:
    """The first step fails once, then the person acts."""
    life = Life()
    life.answered(OutcomeKind.FAILED)
    while not _claims(life.written[-1]):
        life.woken()
    life.answered()
    life.resolved()
    return life


def _claims(one: Written) -> bool:
    return any(output.topic is DELIVERIES for output in one.outputs)


@pytest.mark.parametrize(
    ("life", "bounds"),
    [
        (acted_at_once, {"events": 6, "deliveries": 1, "wake-ups": 2, "states": 3}),
        (climbed, {"events": 8, "deliveries": 3, "wake-ups": 5, "states": 8}),
        (retried, {"events": 8, "deliveries": 2, "wake-ups": 4, "states": 5}),
    ],
)
def test_records_of_a_life(life: Callable[[], Life], bounds: dict[str, int]) -> None:
    """A notification of three steps writes no more records over its life than these, by kind of record."""
    found = life().records()
    assert all(found[name] <= most for name, most in bounds.items()), f"{found}, and the bounds are {bounds}"
    # The bounds mean something only where they are near.
    assert sum(found.values()) >= 0.8 * sum(bounds.values()), f"{found}: lower the bounds {bounds}"


def test_state_of_an_open_notification() -> None:
    """One more open notification of three steps and 110 bytes of data adds no more than this to the stored state, and
    the tenth adds what the second did."""
    life = Life()
    sizes = []
    for number in range(1, 11):
        life.player.now = EPOCH_MS
        one = life.player.play(NOTIFICATIONS, notify(ADA, number), f"more-{number}")
        assert one.state is not None
        sizes.append(len(one.state))
    each = [after - before for before, after in pairwise(sizes)]
    assert max(each) <= 900, f"bytes of each more notification: {each}"
    assert max(each) - min(each) <= 8, f"a later one costs more than an earlier one: {each}"


def test_state_of_an_ended_notification() -> None:
    """What stays for the retention time after the end is at most four fifths of what the open one took."""
    open_one, ended = Life(), acted_at_once()
    before, after = (life.written[-1].state for life in (open_one, ended))
    assert before is not None
    assert after is not None
    base = len(open_one.written[0].state or b"")
    taken, kept = len(before) - base, len(after) - base
    assert kept <= 0.8 * taken, f"{taken} bytes open, {kept} ended"


def test_bytes_of_a_delivery() -> None:
    """A claim costs its data and no more than this besides: value, and headers."""
    life = Life()
    output = next(of_topic(life.written, DELIVERIES))
    assert output.value is not None
    data = len(msgspec.json.encode(life.claimed().data))
    assert len(output.value) - data <= 460, f"{len(output.value) - data} bytes beside the data"
    headers = sum(len(name) + len(value) for name, value in output.headers)
    assert headers <= 170, f"{headers} bytes of headers"
