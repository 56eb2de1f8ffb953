"""Which claim may be called now: lanes, provider limits, slots and deadlines together. Pure; time is an argument.

A claim waits in its lane; the head of a lane waits in the queue of its provider. The head of such a queue takes a
token and a slot only when it has both, so a slow provider holds no slot while it waits and cannot starve another.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from processor.delivery.lanes import Lanes
from processor.delivery.limits import ProviderLimits
from schemas.records import Delivery


class ClaimState(Enum):
    """Waiting, then calling or not, then done."""

    WAITING = "waiting"
    CALLING = "calling"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Claim:
    """A delivery that this worker holds, and the place that it was read from."""

    delivery: Delivery
    partition: int
    offset: int
    generation: int = 0
    """Of the assignment that it was read in; a claim of an older one has no offset to settle any more."""
    provider: str = ""
    target: str = ""
    """The window that it waits for, besides the provider's own."""
    state: ClaimState = ClaimState.WAITING

    @property
    def lane(self) -> tuple[str, str]:
        """Claims of one recipient and channel are called one after the other, in order."""
        return self.delivery.recipient, self.delivery.channel


Route = Callable[[Claim, int], None]
"""Sets `provider` and `target` of a claim that came to the head of its lane."""
Admit = Callable[[Claim], bool]
"""False if the claim was settled without a call."""


class Scheduler:
    """Holds every waiting and calling claim of this worker."""

    def __init__(self, slots: int, limits: Mapping[str, ProviderLimits], route: Route) -> None:
        self._free = slots
        self._limits = limits
        self._route = route
        self._lanes: Lanes[Claim] = Lanes()
        self._queues: dict[str, deque[Claim]] = {name: deque() for name in limits}
        self._parked: dict[tuple[str, str], deque[Claim]] = {}
        self._deadlines: list[tuple[int, int, Claim]] = []
        self._counter = itertools.count()
        self._turn = 0
        self._calling: set[Claim] = set()
        self._waiting: set[Claim] = set()

    @property
    def calling(self) -> frozenset[Claim]:
        """Claims with a provider call in flight."""
        return frozenset(self._calling)

    @property
    def waiting(self) -> int:
        """How many claims wait."""
        return len(self._waiting)

    def add(self, claim: Claim, now: int) -> None:
        """A claim was read."""
        self._waiting.add(claim)
        heapq.heappush(self._deadlines, (claim.delivery.claim_deadline, next(self._counter), claim))
        if self._lanes.push(claim.lane, claim):
            self._enqueue(claim, now)

    def expired(self, now: int) -> list[Claim]:
        """Take out the waiting claims whose deadline has passed."""
        found = []
        while self._deadlines and (
            self._deadlines[0][2].state is not ClaimState.WAITING or self._deadlines[0][0] < now
        ):
            claim = heapq.heappop(self._deadlines)[2]
            if claim.state is ClaimState.WAITING:
                self.finish(claim, now)
                found.append(claim)
        return found

    def start(self, now: int, admit: Admit) -> list[Claim]:
        """Take out the claims to call now. Providers take turns, so that none of them gets all free slots."""
        self._unpark(now)
        started: list[Claim] = []
        names = list(self._queues)
        idle = 0
        while names and idle < len(names):
            name = names[self._turn % len(names)]
            self._turn += 1
            claim = self._next(name, now, admit)
            if claim is None:
                idle += 1
            else:
                idle = 0
                started.append(claim)
        return started

    def finish(self, claim: Claim, now: int) -> None:
        """A claim is settled: after its call, or without one. The next in its lane may go."""
        if claim.state is ClaimState.CALLING:
            self._free += 1
            self._limits[claim.provider].in_use -= 1
            self._calling.discard(claim)
        claim.state = ClaimState.DONE
        self._waiting.discard(claim)
        head = self._lanes.finish(claim.lane, claim, lambda item: item.state is ClaimState.WAITING)
        if head is not None:
            self._enqueue(head, now)

    def drop(self, unwanted: Callable[[Claim], bool], now: int) -> list[Claim]:
        """Take out waiting claims, in no order; calls in flight are left."""
        found = [claim for claim in self._waiting if unwanted(claim)]
        for claim in found:
            claim.state = ClaimState.DONE
        for claim in found:
            self.finish(claim, now)
        return found

    def wake_at(self, now: int) -> int | None:
        """The next moment at which `expired` or `start` may find something without anything else happening."""
        moments = [self._deadlines[0][0] + 1] if self._deadlines else []
        moments += [self._limits[name].opens_at(target, now) for name, target in self._parked]
        for name, queue in self._queues.items():
            limits = self._limits[name]
            if queue and limits.closed_until > now:
                moments.append(limits.closed_until)
            elif queue:
                wait = limits.bucket.wait_ms(now)
                # Where the slots are what is missing, the end of a call is the next moment.
                if wait:
                    moments.append(now + wait)
        return min(moments, default=None)

    def _enqueue(self, claim: Claim, now: int) -> None:
        self._route(claim, now)
        self._queues[claim.provider].append(claim)

    def _next(self, name: str, now: int, admit: Admit) -> Claim | None:
        limits, queue = self._limits[name], self._queues[name]
        while queue and limits.closed_until <= now:
            claim = queue[0]
            if claim.state is not ClaimState.WAITING:
                queue.popleft()
            elif limits.opens_at(claim.target, now) > now:
                self._parked.setdefault((name, claim.target), deque()).append(queue.popleft())
            elif not admit(claim):
                queue.popleft()
                self.finish(claim, now)
            elif self._free <= 0 or limits.in_use >= limits.concurrency or limits.bucket.wait_ms(now) != 0:
                return None
            else:
                return self._begin(queue.popleft(), limits, now)
        return None

    def _begin(self, claim: Claim, limits: ProviderLimits, now: int) -> Claim:
        limits.bucket.take(now)
        limits.in_use += 1
        self._free -= 1
        claim.state = ClaimState.CALLING
        self._waiting.discard(claim)
        self._calling.add(claim)
        return claim

    def _unpark(self, now: int) -> None:
        for name, target in [key for key in self._parked if self._limits[key[0]].opens_at(key[1], now) <= now]:
            claims = self._parked.pop((name, target))
            self._queues[name].extendleft(reversed(claims))
