"""The last-moment check: what became known about a recipient since the processor made the claim. Pure.

Entries are keyed by recipient and kept for about two claim deadlines: an older fact was known to the processor when
it made any claim that is still alive.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from schemas.profile import Profile
from schemas.reasons import Reason
from schemas.records import Delivery

CLOCK_SLACK_MS = 1_000
"""A claim made later than a profile change knows of it. The two moments may come from two hosts, so a claim counts as
later only by more than this; in doubt the person is left alone."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A profile as it was last published. `consent` None means that the person was erased."""

    consent: Mapping[str, bool] | None
    made_at: int
    seen_at: int


@dataclass(slots=True)
class _Facts:
    """What is remembered of one partition, oldest first, so that forgetting starts at the front."""

    resolved: dict[tuple[str, str], int] = field(default_factory=dict)
    changes: dict[str, _Change] = field(default_factory=dict)


class Guard:
    """Recent resolutions and profile changes of the assigned partitions."""

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._partitions: dict[int, _Facts] = {}

    def __len__(self) -> int:
        """How many entries are held."""
        return sum(len(facts.resolved) + len(facts.changes) for facts in self._partitions.values())

    def drop(self, partition: int) -> None:
        """Forget a partition that was taken away."""
        self._partitions.pop(partition, None)

    def resolved(self, partition: int, recipient: str, dedup_key: str, seen_at: int) -> None:
        """The person acted."""
        facts = self._facts(partition)
        facts.resolved.pop((recipient, dedup_key), None)
        facts.resolved[recipient, dedup_key] = seen_at

    def changed(self, partition: int, recipient: str, profile: Profile | None, made_at: int, seen_at: int) -> None:
        """The profile was replaced, or (None) the person was erased. The last change counts: consent that was given
        again is given."""
        changes = self._facts(partition).changes
        changes.pop(recipient, None)
        if profile is None or not all(profile.consent.values()):
            consent = None if profile is None else profile.consent
            changes[recipient] = _Change(consent, made_at, seen_at)

    def verdict(self, partition: int, claim: Delivery) -> Reason | None:
        """Why this claim must not be called any more; None if nothing speaks against it."""
        facts = self._partitions.get(partition)
        if facts is None:
            return None
        change = facts.changes.get(claim.recipient)
        if change is not None and claim.claimed_at <= change.made_at + CLOCK_SLACK_MS:
            if change.consent is None:
                return Reason.ERASED
            if not change.consent.get(claim.kind, True):
                return Reason.CONSENT_WITHDRAWN
        if (claim.recipient, claim.dedup_key) in facts.resolved:
            return Reason.RESOLVED
        return None

    def prune(self, now: int) -> None:
        """Forget what is too old to matter."""
        limit = now - self._keep_ms
        for facts in self._partitions.values():
            for key, _ in list(takewhile(lambda entry: entry[1] < limit, facts.resolved.items())):
                del facts.resolved[key]
            for recipient, _ in list(takewhile(lambda entry: entry[1].seen_at < limit, facts.changes.items())):
                del facts.changes[recipient]

    def _facts(self, partition: int) -> _Facts:
        return self._partitions.setdefault(partition, _Facts())
