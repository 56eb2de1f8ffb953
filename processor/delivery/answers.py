"""Claims that were answered lately, so that none is called again after a rebalance or a restart. Pure.

Fed by the worker's own outcomes and by the outcomes topic of the assigned partitions, which is read back on assignment:
a partition's new owner knows what the old one answered even if the offset of the claim was never committed.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from schemas.records import Delivery, Outcome, OutcomeKind

Name = tuple[str, str, str]
"""Recipient, dedup key and attempt key: a caller may give one notification id to two notifications, and an answer to
one of them is none to the other."""


@dataclass(slots=True)
class _Answer:
    claims: set[int] = field(default_factory=set)
    sent: Outcome | None = None
    seen_at: int = 0


class Answers:
    """Recent outcomes by key and partition."""

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._partitions: dict[int, OrderedDict[Name, _Answer]] = {}

    def __len__(self) -> int:
        """How many keys are held."""
        return sum(len(keys) for keys in self._partitions.values())

    def record(self, partition: int, outcome: Outcome, seen_at: int) -> None:
        """An outcome was written. Receipts (claim 0) are about messages and not about claims."""
        if outcome.claim <= 0:
            return
        keys, name = self._partitions.setdefault(partition, OrderedDict()), _name(outcome)
        answer = keys.get(name)
        if answer is None:
            answer = keys[name] = _Answer()
        else:
            keys.move_to_end(name)
        answer.claims.add(outcome.claim)
        answer.seen_at = seen_at
        if outcome.outcome is OutcomeKind.SENT:
            answer.sent = outcome

    def answered(self, partition: int, claim: Delivery) -> bool:
        """Whether this very claim has its outcome already."""
        answer = self._find(partition, claim)
        return answer is not None and claim.claim in answer.claims

    def sent(self, partition: int, claim: Delivery) -> Outcome | None:
        """The outcome of an earlier claim of the same step that a provider accepted."""
        answer = self._find(partition, claim)
        return answer.sent if answer else None

    def _find(self, partition: int, claim: Delivery) -> _Answer | None:
        keys = self._partitions.get(partition)
        return None if keys is None else keys.get(_name(claim))

    def drop(self, partition: int) -> None:
        """Forget a partition that was taken away."""
        self._partitions.pop(partition, None)

    def prune(self, now: int) -> None:
        """Forget what is too old to matter."""
        for keys in self._partitions.values():
            while keys and next(iter(keys.values())).seen_at < now - self._keep_ms:
                keys.popitem(last=False)


def _name(record: Delivery | Outcome) -> Name:
    return record.recipient, record.dedup_key, record.key
