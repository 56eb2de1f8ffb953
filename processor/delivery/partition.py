"""What the worker holds of one assigned partition."""

from dataclasses import dataclass, field

from processor.delivery.scheduler import Claim
from processor.delivery.source import Assignment
from processor.delivery.tracker import OffsetTracker


@dataclass(slots=True, eq=False)
class Partition:
    """One assignment of one partition. A later assignment of the same number is another object."""

    assignment: Assignment
    generation: int
    """Counts assignments, so that a claim knows whether its offset still matters."""
    barriers: dict[str, int]
    """Topics that are still being read back; claims wait until it is empty."""
    tracker: OffsetTracker = field(default_factory=OffsetTracker)
    early: list[Claim] = field(default_factory=list)
    """Claims that came while the read-back was under way."""
    paused: bool = False
    committed: int | None = None
    letters_written: int | None = None
    """The offset of `recipients` to commit: below it no dead letter is missing."""

    @property
    def ready(self) -> bool:
        """Whether everything that may speak against a claim has been read."""
        return not self.barriers

    def passed(self, topic: str, offset: int) -> bool:
        """A followed topic was read up to `offset` (exclusive); true if that ends the read-back."""
        barrier = self.barriers.get(topic)
        if barrier is None or offset < barrier:
            return False
        del self.barriers[topic]
        return self.ready

    def reached_end(self, topic: str) -> bool:
        """A followed topic was read to its end, whatever offset that is: the last ones may hold no record (the
        marker of a transaction). True if that ends the read-back."""
        return self.barriers.pop(topic, None) is not None and self.ready
