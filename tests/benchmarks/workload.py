"""A mix of inputs that the real decision has been played over: what each input writes is known byte for byte.

One recipient has one open notification and gets one input of the mix, so what is decided does not depend on the order
in which an engine reads its topics, and a baseline can be told to write exactly what the processor writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID, uuid5

import msgspec
from msgspec.structs import replace

from processor.delivery.outcomes import plain
from processor.domain.decide import decide
from processor.engine.handler import Handler
from processor.engine.port import InputRecord, OutputRecord
from schemas import records as r
from schemas.codec import AnyRecord, encode, encode_key
from schemas.envelope import Envelope, Headers, to_headers
from schemas.partitioner import partition_of
from schemas.profile import Profile
from schemas.state import Ladder, LadderStep
from schemas.topics import DELIVERIES, DUE, NOTIFICATIONS, OUTCOMES, RESOLUTIONS, Topic

NAMESPACE = UUID(int=5)
EPOCH_MS = 1_800_000_000_000
"""Where the runs' own clock begins; it ticks with the records, so that every run decides the same."""
LATER_MS = 700_000
"""From the beginning to the first input: the second step of who was told at the beginning is due by then."""
BEFORE_MS = 15_000
"""How long before the first input the others were told: their second step is not due, nor is their claim lost."""
BETWEEN_MS = 590_000
"""From the beginning to what else those hold whose second step comes due: its own second step does not, by far."""
TICKS = 4
"""Inputs to a millisecond of the runs' clock."""
KIND = "payment_action_required"
LADDERS = {
    KIND: Ladder(
        kind=KIND,
        steps=(
            LadderStep(channel="push", after_ms=0, template="payment"),
            LadderStep(channel="chat", after_ms=600_000, template="payment"),
            LadderStep(channel="email", after_ms=7_200_000, template="payment"),
        ),
    )
}
MIX: tuple[Topic, ...] = (NOTIFICATIONS, OUTCOMES, DUE, RESOLUTIONS)
"""A quarter of the inputs each: a new notification, a `sent`, a wake-up whose step is due, a resolution."""


def clock_at(tick: int) -> int:
    """The runs' clock at the n-th input."""
    return EPOCH_MS + LATER_MS + tick // TICKS


@dataclass(frozen=True, slots=True)
class Written:
    """One input, and what the processor writes for it."""

    topic: Topic
    partition: int
    key: bytes
    value: bytes
    headers: Headers
    state: bytes | None
    """The recipient's state afterwards; None if it is not written."""
    outputs: tuple[OutputRecord, ...]


@dataclass(frozen=True)
class Workload:
    """The state that a run begins with, by recipient, and its inputs."""

    states: dict[bytes, bytes]
    inputs: list[Written]


class _Store:
    """One recipient's state."""

    def __init__(self) -> None:
        self.states: dict[bytes, bytes] = {}
        self.written: bytes | None = None

    def read(self, key: bytes) -> bytes | None:
        return self.states.get(key)

    def write(self, key: bytes, value: bytes | None) -> None:
        assert value is not None
        self.states[key] = self.written = value


class Player:
    """Plays records through the processor's own code, without Kafka."""

    def __init__(self, partitions: int) -> None:
        """Nothing is known at the start; `partitions` is the topics' number."""
        self._partitions = partitions
        self.store = _Store()
        self.now = EPOCH_MS
        self._handler = Handler(decide, LADDERS, lambda: self.now, quiet=True)

    def play(self, topic: Topic, record: AnyRecord, ce_id: str) -> Written:
        """Decide one record now."""
        assert not isinstance(record, r.DeliveryEvent)
        key, value = encode_key(record.recipient), encode(record)
        headers = to_headers(Envelope(ce_id, record.TYPE, "/rung/outbox", self.now))
        partition = partition_of(key, self._partitions)
        self.store.written = None
        raw = InputRecord(topic, partition, 0, self.now, key, value, list(headers), self._partitions)
        outputs = self._handler.handle(raw, self.store)
        return Written(topic, partition, key, value, headers, self.store.written, tuple(outputs))


def notify(recipient: str, number: int) -> r.Notify:
    """A request of about 250 bytes, as the outbox's benchmarks have it."""
    return r.Notify(
        notification_id=uuid5(NAMESPACE, f"{recipient}|{number}"),
        recipient=recipient,
        kind=KIND,
        dedup_key=f"invoice-{number}",
        data={"amount": "12.50 EUR", "number": number, "text": "x" * 60},
    )


def profile(recipient: str) -> r.PutRecipient:
    """A person who can be reached on every channel."""
    addresses = {"push": f"token-{recipient}", "chat": f"@{recipient}", "email": f"{recipient}@example.test"}
    return r.PutRecipient(
        recipient=recipient, profile=Profile(addresses=addresses, time_zone="Europe/Berlin", locale="de")
    )


def recipient_name(number: int) -> str:
    """The name of a recipient of the benchmarks."""
    return f"recipient-{number:07d}"


def opened(player: Player, recipient: str, number: int = 0) -> list[Written]:
    """Make a recipient with one open notification, whose first step is claimed."""
    return [
        player.play(NOTIFICATIONS, profile(recipient), f"put-{recipient}"),
        player.play(NOTIFICATIONS, notify(recipient, number), f"notify-{recipient}-{number}"),
    ]


def answer(output: OutputRecord, at: int) -> r.Outcome:
    """The provider's yes to a claim."""
    assert output.value is not None
    claim = msgspec.json.decode(output.value, type=r.Delivery)
    yes = plain(claim, r.OutcomeKind.SENT, "", at)
    return replace(yes, provider="push-1", provider_ref=f"ref-{claim.key}", latency_ms=50)


def of_topic(written: list[Written], topic: Topic) -> Iterator[OutputRecord]:
    """The outputs to one topic."""
    return (output for one in written for output in one.outputs if output.topic is topic)


def mixed(recipients: int, partitions: int, bystanders: int = 0, held: int = 1) -> Workload:
    """The mix, one input for each of `recipients`.

    Args:
        recipients: how many get an input.
        partitions: of every topic.
        bystanders: how many more have an open notification and get no input.
        held: open notifications that each recipient has.
    """
    player = Player(partitions)
    asked: list[tuple[Topic, AnyRecord, str] | None] = [None] * recipients
    everyone = range(recipients + bystanders)

    def begin(number: int) -> None:
        recipient, topic = recipient_name(number), MIX[number % len(MIX)]
        claim = next(of_topic(opened(player, recipient), DELIVERIES))
        if topic is not OUTCOMES or number >= recipients:
            player.play(OUTCOMES, answer(claim, player.now), f"sent-{recipient}")
        if number < recipients:
            asked[number] = _asked(topic, recipient, number, claim)

    def hold(number: int) -> None:
        recipient = recipient_name(number)
        for more in range(1, held):
            written = player.play(NOTIFICATIONS, notify(recipient, more), f"notify-{recipient}-{more}")
            for claim in of_topic([written], DELIVERIES):
                player.play(OUTCOMES, answer(claim, player.now), f"sent-{recipient}-{more}")

    # The clock of a partition never goes back, so those who wait for their second step come first; and what a wake-up
    # finds due is one step, whatever else the recipient holds.
    waiting = [number for number in everyone if MIX[number % len(MIX)] is DUE]
    for at, act in ((EPOCH_MS, begin), (EPOCH_MS + BETWEEN_MS, hold)):
        player.now = at
        for number in waiting:
            act(number)
    player.now = EPOCH_MS + LATER_MS - BEFORE_MS
    for number in everyone:
        if MIX[number % len(MIX)] is not DUE:
            begin(number)
            hold(number)
    states = dict(player.store.states)
    inputs = []
    for tick, ask in enumerate(asked):
        assert ask is not None
        topic, record, ce_id = ask
        player.now = clock_at(tick)
        inputs.append(player.play(topic, record, ce_id))
    return Workload(states, inputs)


def _asked(topic: Topic, recipient: str, number: int, claim: OutputRecord) -> tuple[Topic, AnyRecord, str]:
    if topic is NOTIFICATIONS:
        return topic, notify(recipient, 1_000 + number), f"notify-{recipient}-new"
    if topic is OUTCOMES:
        return topic, answer(claim, EPOCH_MS + LATER_MS), f"sent-{recipient}"
    if topic is DUE:
        return topic, r.Due(recipient=recipient, due_at=EPOCH_MS + 600_000), f"due-{recipient}"
    return topic, r.Resolve(recipient=recipient, dedup_key="invoice-0", resolution="paid"), f"resolve-{recipient}"
