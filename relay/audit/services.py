"""The journal services' own counters against the recount.

They count since their start, and what they have counted can be recounted exactly only at a moment at which the journal
stands still: the comparison looks before and after, and passes where events flow. Whether the recount is over the same
events shows in their number, which the services count too.
"""

import time
from collections.abc import Iterator, Sequence

from relay.audit.recount import Recount, Scrape, scrape
from relay.audit.rounds import Auditor
from relay.audit.rules import Violation, counters

TRIES = 5
PAUSE_SECONDS = 0.2
BY = "a journal service's counter"


class ServiceCounters:
    """Compares now and then."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Look at the services once.

        Raises:
            OSError, ValueError: see `scrape`.
        """
        self._addresses = tuple(addresses)
        self.started_at = scrape(self._addresses).started_at
        self._base: tuple[Scrape, Recount] | None = None
        self.notes: list[str] = []
        """Why the last comparison was not made, if it was not."""

    def compare(self, auditor: Auditor) -> Iterator[Violation]:
        """Compare after a round: from the start of the services, and later on what has been counted since.

        Raises:
            OSError, ValueError: see `scrape`.
        """
        self.notes = []
        told = self._still(auditor)
        if told is None:
            return
        base = self._base if self._base is not None and self._base[0].processes == told.processes else None
        if base is not None:
            mine, theirs = auditor.recount.minus(base[1]), told.recount.minus(base[0].recount)
        else:
            mine, theirs = self._since_start(auditor, told), told.recount
        same = mine.events == theirs.events
        if base is None or same:
            self._base = (told, auditor.recount.copy())
        if not same:
            self.notes = [
                f"the services' counters were not compared: they count {theirs.events} events, "
                f"and {mine.events} were found since they started"
            ]
            return
        yield from counters(mine.kinds, theirs.kinds, BY, exact_depths=False)

    def _since_start(self, auditor: Auditor, told: Scrape) -> Recount:
        if auditor.recount.events == told.recount.events or told.started_at != self.started_at:
            return auditor.recount
        return auditor.recounted_since

    def _still(self, auditor: Auditor) -> Scrape | None:
        """The counters at a moment at which the journal stands where the last round saw it."""
        for _ in range(TRIES):
            if not auditor.settled():
                break
            told = scrape(self._addresses)
            if auditor.settled() and (self._base is not None or self._counted(auditor, told)):
                return told
            # The journal counts a moment after it has written.
            time.sleep(PAUSE_SECONDS)
        else:
            return scrape(self._addresses)
        self.notes = ["the services' counters were not compared: events are flowing"]
        return None

    def _counted(self, auditor: Auditor, told: Scrape) -> bool:
        return told.recount.events in {auditor.recount.events, auditor.recounted_since.events}
