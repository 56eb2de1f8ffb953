"""How fast and how wide a provider may be called: token buckets, slots and windows. Pure; time is an argument."""

import math
from dataclasses import dataclass, field

MAX_WINDOWS = 10_000
"""Windows of single targets kept per provider; beyond it the ones that open first are forgotten."""


class TokenBucket:
    """At most `rate` calls per second on average, and `burst` at once. Without a rate there is no limit."""

    def __init__(self, rate: float | None, burst: float, now: int) -> None:
        self._rate = self._full_rate = rate
        self._burst = self._full_burst = max(1.0, burst)
        self._tokens = self._burst
        self._at = now

    def set_share(self, share: float, now: int) -> None:
        """Take this share (0 to 1) of the rate and of the burst; workers divide a provider by their partitions."""
        self._refill(now)
        self._rate = None if self._full_rate is None else self._full_rate * share
        # One token must fit, or a small share could never call.
        self._burst = max(1.0, self._full_burst * share)
        self._tokens = min(self._tokens, self._burst)

    def wait_ms(self, now: int) -> int | None:
        """Milliseconds until there is a token, 0 if there is one; None if the share is nothing."""
        self._refill(now)
        if self._rate is None or self._tokens >= 1:
            return 0
        if self._rate <= 0:
            return None
        return max(1, math.ceil((1 - self._tokens) * 1000 / self._rate))

    def take(self, now: int) -> None:
        """Use one token; the caller has seen that there is one."""
        self._refill(now)
        if self._rate is not None:
            self._tokens -= 1

    def _refill(self, now: int) -> None:
        # A clock that is set back gives no tokens and takes none.
        if self._rate is not None:
            self._tokens = min(self._burst, self._tokens + max(0, now - self._at) * self._rate / 1000)
        self._at = now


@dataclass(slots=True)
class ProviderLimits:
    """What one provider allows this worker."""

    bucket: TokenBucket
    concurrency: int
    in_use: int = 0
    closed_until: int = 0
    _targets: dict[str, int] = field(default_factory=dict)

    def close(self, target: str, until: int) -> None:
        """No call before `until`: to the whole provider (`target` empty), or to one target of it. A recipient's own
        URL is a target of its own, so that one recipient's server cannot stop everyone's webhooks."""
        if not target:
            self.closed_until = max(self.closed_until, until)
            return
        self._targets[target] = max(self._targets.get(target, 0), until)
        if len(self._targets) > MAX_WINDOWS:
            del self._targets[min(self._targets, key=self._targets.__getitem__)]

    def clock_set_back(self, by_ms: int) -> None:
        """The clock was set back by so much: windows stay closed for as long as they would have."""
        self.closed_until -= by_ms
        self._targets = {target: until - by_ms for target, until in self._targets.items()}

    def opens_at(self, target: str, now: int) -> int:
        """The moment from which a call is allowed; `now` or earlier if it is open."""
        if not target:
            return self.closed_until
        until = self._targets.get(target, 0)
        if until and until <= now:
            del self._targets[target]
        return max(until, self.closed_until)
