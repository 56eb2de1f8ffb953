"""The catalogue of topics: names, clean-up, retention, who writes and who reads, and which record types they carry.

It is the only place that knows these; topic creation, the documentation and the services read it. Every topic is keyed
by recipient and has the same number of partitions, so that all facts about one recipient meet in one partition.
"""

from dataclasses import dataclass
from typing import Literal

from schemas import records as r

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

PARTITIONER = "murmur2_random"
"""Java's default partitioner under librdkafka's name. librdkafka's own default is CRC32, and the two agree on about one
key in five, so a resolution written by a Java service would miss its notification."""

CLAIM_DEADLINE_MS = 30 * SECOND_MS
"""How long a delivery worker may hold a claim before the provider call starts."""
CLAIM_GRACE_MS = 15 * SECOND_MS
"""How long after that deadline the outcome of a call that started in time may come; then the step is claimed again. It
covers a look-up and a call, each with the longest time-out that a provider may have (`PROVIDER_TIMEOUT_LIMIT_MS`)."""
PROVIDER_TIMEOUT_LIMIT_MS = 5 * SECOND_MS


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as the catalogue knows it."""

    name: str
    cleanup: Literal["delete", "compact"]
    retention_ms: int | None
    types: tuple[str, ...]
    """The CloudEvents types that it carries; any other type on an input is a dead letter."""
    written_by: str
    read_by: str
    max_message_bytes: int = 1_048_588
    """Kafka's own default, 1 MiB and a record batch's head."""
    append_time: bool = False
    """Records are stamped by the broker when they are appended. Delivery workers read these topics back by time, and a
    writer's own stamp may be older than that: it may wait for the broker, or pass on the time of its input."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One delay topic: its records wait at most this long in it."""

    name: str
    delay_ms: int

    @property
    def topic(self) -> str:
        return f"delay.{self.name}"


TIERS: tuple[Tier, ...] = (
    Tier("1s", 1 * SECOND_MS),
    Tier("5s", 5 * SECOND_MS),
    Tier("30s", 30 * SECOND_MS),
    Tier("2m", 2 * MINUTE_MS),
    Tier("5m", 5 * MINUTE_MS),
    *(Tier(f"{m}m" if m < 60 else f"{m // 60}h", m * MINUTE_MS) for m in (15 * 2**i for i in range(9))),
)
"""1 s, 5 s, 30 s, 2 min, 5 min, then doubling from 15 min to 64 h."""


OVERSHOOT_MS = 500
"""By how much a tier may be longer than the wait. A record leaves at its moment all the same; without this a wait that
is some milliseconds short of a tier, as most are that were planned a moment ago, would take ten hops in place of one.
It may leave before records ahead of it, so the delayer must hold what leaves within this time."""


def tier_for(remaining_ms: int) -> Tier:
    """The largest tier that does not overshoot by more than `OVERSHOOT_MS`; for less, the smallest."""
    for tier in reversed(TIERS):
        if tier.delay_ms <= remaining_ms + OVERSHOOT_MS:
            return tier
    return TIERS[0]


NOTIFICATIONS = Topic(
    "notifications",
    "delete",
    7 * DAY_MS,
    (r.Notify.TYPE, r.PutRecipient.TYPE, r.EraseRecipient.TYPE, r.Redrive.TYPE),
    "outbox relay, `rung redrive`",
    "processor",
)
RESOLUTIONS = Topic(
    "resolutions",
    "delete",
    7 * DAY_MS,
    (r.Resolve.TYPE,),
    "outbox relay",
    "processor, delivery workers",
    append_time=True,
)
RECIPIENTS = Topic(
    "recipients",
    "compact",
    None,
    (r.RecipientProfile.TYPE,),
    "processor",
    "delivery workers, other services",
    append_time=True,
)
DUE = Topic("due", "delete", 7 * DAY_MS, (r.Due.TYPE,), "delayer", "processor")
DELIVERIES = Topic(
    "deliveries",
    "delete",
    DAY_MS,
    (r.Delivery.TYPE,),
    "processor",
    "delivery workers",
    # A delivery carries the data of the largest notification and an address besides.
    2 * 1_048_588,
)
OUTCOMES = Topic(
    "outcomes",
    "delete",
    7 * DAY_MS,
    (r.Outcome.TYPE,),
    "delivery workers, receipt endpoint",
    "processor, delivery workers",
)
DELIVERY_EVENTS = Topic(
    "delivery-events", "delete", 30 * DAY_MS, tuple(r.EventType), "processor", "journal, analytics (public contract)"
)
DEAD_LETTERS = Topic(
    "dead-letters",
    "delete",
    30 * DAY_MS,
    (),
    "any service",
    "operator",
    # The largest record of any other topic, with the headers that say why it is here, must fit.
    2 * 1_048_588,
)
DELAYS: tuple[Topic, ...] = tuple(
    Topic(t.topic, "delete", t.delay_ms + 7 * DAY_MS, (r.Due.TYPE,), "processor, delayer", "delayer") for t in TIERS
)

CATALOGUE: tuple[Topic, ...] = (
    NOTIFICATIONS,
    RESOLUTIONS,
    RECIPIENTS,
    DUE,
    *DELAYS,
    DELIVERIES,
    OUTCOMES,
    DELIVERY_EVENTS,
    DEAD_LETTERS,
)

PROCESSOR_INPUTS: tuple[Topic, ...] = (NOTIFICATIONS, RESOLUTIONS, DUE, OUTCOMES)


@dataclass(frozen=True, slots=True)
class Naming:
    """How catalogue names become names on a cluster: an optional prefix lets several systems share one."""

    prefix: str = ""

    def __call__(self, topic: Topic | Tier) -> str:
        """The name of a catalogue topic, or of a tier's delay topic, on the cluster."""
        return self.prefix + (topic.topic if isinstance(topic, Tier) else topic.name)
