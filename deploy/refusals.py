"""What would lose data if a service started: pure judgements, each one sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deploy.errors import CommandError

Place = tuple[str, int]


class RefusedError(CommandError, RuntimeError):
    """A service was not let start; nothing was written. The message says why and what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """Records that retention deleted before they were processed."""

    topic: str
    partition: int
    position: int
    begin: int
    """The first offset that Kafka still has."""

    @property
    def records(self) -> int:
        """The most that were lost; the end marks of transactions are counted too, for they look the same."""
        return self.begin - self.position

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]: stands at {self.position}, and Kafka begins at {self.begin}"


def missing_topics(needed: Iterable[str], counts: Mapping[str, int]) -> str | None:
    """Topics that are not on the cluster. `counts` are the partitions of those that are."""
    missing = sorted(name for name in needed if name not in counts)
    if not missing:
        return None
    return f"topics are missing: {', '.join(missing)}; create them with `rung topics create`"


def uneven_topics(needed: Iterable[str], counts: Mapping[str, int]) -> str | None:
    """Topics that are read or written together and differ in their number of partitions."""
    by_count: dict[int, list[str]] = {}
    for name in needed:
        by_count.setdefault(counts[name], []).append(name)
    if len(by_count) <= 1:
        return None
    listed = "; ".join(f"{count} partitions: {', '.join(sorted(names))}" for count, names in sorted(by_count.items()))
    return (
        f"topics that belong together have different numbers of partitions ({listed}), so the facts about a recipient "
        "would not meet: give them one number as the runbook's heading OtherPartitions says"
    )


def bad_changelog(
    changelog: str, inputs: Iterable[str], counts: Mapping[str, int], cleanup: str | None, *, committed: bool
) -> str | None:
    """A changelog that does not hold the state of these inputs.

    Args:
        changelog: its name.
        inputs: the topics that the state was built from.
        counts: the partitions of the topics on the cluster.
        cleanup: the changelog's `cleanup.policy`; None if it is not known.
        committed: whether the processor has committed offsets, and so must have had a state.
    """
    if changelog not in counts:
        if not committed:
            return None
        return (
            f"the processor's state is gone: {changelog} is missing although offsets are committed, and every open "
            "notification would be forgotten; restore the topic, or accept the loss as the runbook's heading "
            "LostState says"
        )
    if cleanup is not None and cleanup != "compact":
        return (
            f"{changelog} has cleanup.policy={cleanup}, so Kafka deletes the processor's state by age: set it to "
            f"compact with `kafka-configs.sh --alter --topic {changelog} --add-config cleanup.policy=compact`, and see "
            "the runbook's heading LostState for what may be gone already"
        )
    for name in inputs:
        if counts[name] != counts[changelog]:
            return (
                f"the processor's state was built with {counts[changelog]} partitions ({changelog}), and {name} has "
                f"{counts[name]}: recipients would be looked for in another one's state; give {name} the old number "
                "back as the runbook's heading OtherPartitions says"
            )
    return None


def losses(positions: Mapping[Place, int], begins: Mapping[Place, int], in_transactions: frozenset[str]) -> list[Loss]:
    """Where a reader's position is below the first record that Kafka still has.

    A transaction leaves a mark of its end behind its records, which no reader is given. Where the last record was
    processed and everything was deleted since, the position is before that mark; that one offset is no loss in a
    topic of `in_transactions`.
    """
    found = []
    for (topic, partition), position in positions.items():
        begin = begins.get((topic, partition), 0)
        if position >= 0 and begin - position > (1 if topic in in_transactions else 0):
            found.append(Loss(topic, partition, position, begin))
    return sorted(found)


def lost_records(reader: str, found: Iterable[Loss]) -> str | None:
    """Records that a reader never saw, and never will."""
    lost = list(found)
    if not lost:
        return None
    first = "; ".join(map(str, lost[:3])) + (f"; and {len(lost) - 3} more" if len(lost) > 3 else "")
    return (
        f"records were deleted by retention before {reader} read them ({first}): read the runbook's heading "
        "LostRecords, and go on without them with `rung accept-loss --yes`"
    )


def dropped_kinds(open_by_kind: Mapping[str, int]) -> str | None:
    """Kinds that are gone from the ladder file and that open notifications have."""
    if not open_by_kind:
        return None
    listed = ", ".join(f"{kind} ({count} open)" for kind, count in sorted(open_by_kind.items()))
    return (
        f"ladders.toml has no {listed} any more: what is on its way becomes a dead letter, and what is open still "
        "needs its templates; put the kind back until all have ended, or give it up with `rung ladders apply --force`"
    )


def dropped_channels(open_by_channel: Mapping[str, int]) -> str | None:
    """Channels that are gone from `channels.toml` and that steps to come of open notifications have."""
    if not open_by_channel:
        return None
    listed = ", ".join(f"{channel} ({count} open)" for channel, count in sorted(open_by_channel.items()))
    return (
        f"channels.toml has no {listed} any more, and the steps to come of these notifications would be refused: put "
        "the channel back until all have ended, or use --force"
    )
