"""What a benchmark says: rows of figures, each beside its baseline of the same run, and the bound that it must keep.

Baseline and ours take turns, because a machine is not equally fast all the time; a ratio is that of one turn of each.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Spread:
    """The least, the middle and the most of several values."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(min(values), statistics.median(values), max(values))


@dataclass(frozen=True)
class Must:
    """A bound on the median, of the ratio where a row has a baseline and of its value where it has none.

    `of` says otherwise: a row may be bound by its value though it has a baseline.
    """

    least: float | None = None
    most: float | None = None
    of: Literal["ratio", "value"] | None = None

    def __str__(self) -> str:
        parts = [f"≥ {self.least:g}"] if self.least is not None else []
        parts += [f"≤ {self.most:g}"] if self.most is not None else []
        return " and ".join(parts)

    def kept(self, value: float) -> bool:
        """Whether a value lies within."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True)
class Row:
    """One figure: what was measured, in each round, beside the baseline's in the same round."""

    part: str
    what: str
    unit: str
    ours: tuple[float, ...]
    baseline: tuple[float, ...] = ()
    """The baseline's value of each round; empty where there is nothing to compare with."""
    better: Literal["higher", "lower"] = "higher"
    must: Must | None = None
    notes: str = ""
    """What the baseline is, and what limits the figure."""
    raw: Mapping[str, Any] = field(default_factory=dict)
    """More numbers for the file of raw numbers."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ours divided by the baseline, round by round; empty without a baseline."""
        return tuple(_ratio(o, b) for o, b in zip(self.ours, self.baseline, strict=False))

    @property
    def kept(self) -> bool | None:
        """Whether the bound is kept; None where there is none."""
        if self.must is None:
            return None
        by_value = self.must.of == "value" or (self.must.of is None and not self.baseline)
        return self.must.kept(statistics.median(self.ours if by_value else self.ratios))

    def json(self) -> dict[str, Any]:
        """Everything about it, for the file of raw numbers."""
        return asdict(self) | {"ratios": self.ratios, "kept": self.kept, "raw": dict(self.raw)}


def _ratio(ours: float, baseline: float) -> float:
    if baseline:
        return ours / baseline
    return 1.0 if ours == 0 else float("inf")


def take_turns(rounds: int, *runs: Callable[[], Any], warm_up: bool = True) -> list[list[Any]]:
    """Call each of `runs` in turn, `rounds` times over, and return what each of them returned, in order.

    With `warm_up` there is one more round before, whose results are dropped: it warms the servers and their caches.
    """
    if warm_up:
        for run in runs:
            run()
    results: list[list[Any]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, found in zip(runs, results, strict=True):
            found.append(run())
    return results


def percentile(values: Sequence[float], percent: float) -> float:
    """A percentile of at least one value, by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(percent / 100 * len(ordered) + 0.5) - 1))]
