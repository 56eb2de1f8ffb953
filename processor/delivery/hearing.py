"""Since when Kafka has been silent, told by the client's own statistics: what a worker knows is as old as that."""

import time
from collections.abc import Callable

import msgspec

INTERVAL_MS = 500
"""How often the client makes its statistics."""


class _Broker(msgspec.Struct):
    state: str
    rxidle: int
    """Microseconds since anything came from it; -1 if nothing has on this connection."""
    toppars: dict[str, msgspec.Raw]
    """The partitions that are read from it."""


class _Statistics(msgspec.Struct):
    brokers: dict[str, _Broker]


class Hearing:
    """Follows the brokers that the assigned partitions are read from.

    A consumer has a fetch open at each of them all the time, and a broker answers one after `fetch.wait.max.ms` also
    where it has nothing to tell. So one that says nothing for longer is out of reach: the connection may have been
    refused, or lead nowhere, which no error tells for a minute.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard_at = clock()

    @property
    def heard_at(self) -> float:
        """The moment, on the monotonic clock in seconds, up to which all these brokers were heard."""
        return self._heard_at

    def take(self, statistics: str) -> None:
        """Take in what the client says, from its `stats_cb`."""
        brokers = [b for b in msgspec.json.decode(statistics, type=_Statistics).brokers.values() if b.toppars]
        if all(broker.state == "UP" and broker.rxidle >= 0 for broker in brokers):
            idle = max((broker.rxidle for broker in brokers), default=0)
            self._heard_at = max(self._heard_at, self._clock() - idle / 1_000_000)
