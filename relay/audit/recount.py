"""The recount of the counters that people steer by, and what the services' own counters say."""

import urllib.request
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from relay.audit.book import Fact
from relay.audit.rules import Counts, KindCount
from relay.journal.totals import count

SCRAPE_SECONDS = 5.0
Group = tuple[str, str, str, str | None, int | None, int | None]


@dataclass(slots=True)
class Recount:
    """Counters per kind, made anew from the events."""

    kinds: dict[str, KindCount] = field(default_factory=dict)
    events: int = 0
    """How many events the journal holds of them."""

    def add(self, fact: Fact) -> None:
        """Count an event."""
        self.kinds.setdefault(fact.event.kind, KindCount()).add(fact.type, fact.event)

    def merge(self, other: "Recount") -> None:
        """Take in what was counted elsewhere."""
        self.events += other.events
        for kind, more in other.kinds.items():
            mine = self.kinds.setdefault(kind, KindCount())
            mine.concluded += more.concluded
            mine.cancelled += more.cancelled
            mine.depths.update(more.depths)

    def minus(self, other: "Recount") -> "Recount":
        """What was counted since `other`, which was counted earlier."""
        nothing = KindCount()
        kinds = {kind: mine.minus(other.kinds.get(kind, nothing)) for kind, mine in self.kinds.items()}
        return Recount(kinds, self.events - other.events)

    def copy(self) -> "Recount":
        """As it is now."""
        return self.minus(Recount())


def of_rows(groups: Counter[Group]) -> Counts:
    """The counters as the journal sums them up from its rows."""
    totals = count((*group, number) for group, number in groups.items())
    return {total.kind: KindCount(total.concluded, total.cancelled, Counter(total.depth)) for total in totals}


@dataclass(frozen=True, slots=True)
class Scrape:
    """What the journal services say at one moment, added up."""

    started_at: int
    """When the first of them started, in milliseconds."""
    recount: Recount
    processes: tuple[float, ...]
    """Their start times: other ones mean other counters."""


def scrape(addresses: Sequence[str]) -> Scrape:
    """Read the counters of the journal services.

    Raises:
        OSError: one does not answer.
        ValueError: what it answers is no exposition of metrics, or an address is none.
    """
    total, started = Recount(), []
    for address in addresses:
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"{address!r} is no http address of metrics")
        with urllib.request.urlopen(address, timeout=SCRAPE_SECONDS) as answer:  # noqa: S310 - checked above
            text = answer.read().decode()
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        total.merge(_of_samples((s.name, s.labels, s.value) for s in samples))
        started += [s.value for s in samples if s.name == "process_start_time_seconds"]
    return Scrape(round(min(started, default=0.0) * 1000), total, tuple(sorted(started)))


def _of_samples(samples: Iterable[tuple[str, dict[str, str], float]]) -> Recount:
    found = Recount()
    acted: Counter[str] = Counter()
    depths: Counter[str] = Counter()
    for name, labels, value in samples:
        kind, number = labels.get("kind", ""), round(value)
        match name:
            case "rung_journal_events_total":
                found.events += number
            case "rung_concluded_steps_total":
                found.kinds.setdefault(kind, KindCount()).concluded += number
            case "rung_cancelled_steps_total":
                found.kinds.setdefault(kind, KindCount()).cancelled += number
            case "rung_escalation_depth_count":
                acted[kind] += number
            case "rung_escalation_depth_sum":
                depths[kind] += number
            case _:
                pass
    for kind, number in acted.items():
        # A histogram tells the number and the sum: one stands for the sum, the others for nothing.
        found.kinds.setdefault(kind, KindCount()).depths = _with(number, depths[kind])
    return found


def _with(number: int, total: int) -> Counter[int]:
    if number < 1:
        return Counter()
    return Counter({total: 1}) + Counter({0: number - 1})
