"""What the processor is told at its start."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from schemas.state import Ladder
from schemas.topics import Naming

PROCESSOR_GROUP = "rung-processor"
Engine = Literal["quix", "faust"]
Store = Literal["rocksdb", "memory"]


@dataclass(frozen=True, kw_only=True)
class ProcessorConfig:
    """The settings of one instance; they do not change while it runs."""

    kafka: Mapping[str, str]
    """Base librdkafka settings with `bootstrap.servers`; its secrets are not shown."""
    ladders: Mapping[str, Ladder]
    """The ladder of each kind, for notifications that are accepted from now on."""
    state_dir: Path
    """Where the local copy of the state lies. It may be lost at any time: the changelog restores it."""
    naming: Naming = field(default_factory=Naming)
    instance_id: str = "0"
    """Names this instance among the processors of one system. It must stay the same over restarts and be no other
    running instance's: it makes the `transactional.id` (a restart ends the transaction of the process before it) and
    the `group.instance.id` (a restart takes its partitions back without a rebalance)."""
    commit_interval_seconds: float = 0.05
    """How much work one transaction holds. Shorter is less delay and more transactions."""
    poll_seconds: float = 0.02
    """How long to wait for a record; it adds to the delay of what was processed just before."""
    session_seconds: float = 10.0
    """How long an instance may be silent before its partitions go to others."""
    transaction_seconds: float = 10.0
    """How long an open transaction of a dead instance that is *not* restarted holds readers back."""
    poll_limit_seconds: float = 60.0
    """How long one round of work may take before the group takes the partitions away; also the limit of a flush."""
    engine: Engine = "quix"
    """What it runs on."""
    store: Store = "rocksdb"
    """Where the local copy of the state is kept; `memory`, which only the engine `faust` has, is read back at each
    start."""
    memory_mib: int = 64
    """The most that RocksDB's cache takes, for all partitions; its write buffers come on top (8 MiB a partition)."""
    shutdown_seconds: float = 10.0
    at: Callable[[str], None] = field(default=lambda _: None, repr=False, compare=False)
    """Called with each name of `points` as the service passes there; a test may end the process in it."""
    beat: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Called with each turn of the loop, so that someone can tell a service that hangs."""
    ready: Callable[[bool], None] = field(default=lambda _: None, repr=False, compare=False)
    """Called when the service has its share of the work, and when it has lost it."""
    progress: Callable[[Mapping[tuple[str, int], tuple[int, int]]], None] = field(
        default=lambda _: None, repr=False, compare=False
    )
    """Called about once a second with the position and the end of each partition that is read, by topic and number."""

    def __repr__(self) -> str:
        """Without the client settings, which may hold secrets."""
        return (
            f"ProcessorConfig(instance_id={self.instance_id!r}, prefix={self.naming.prefix!r}, "
            f"kinds={sorted(self.ladders)}, state_dir={str(self.state_dir)!r})"
        )

    @property
    def group(self) -> str:
        """The consumer group, and the stem of the changelog's and the transactions' names."""
        return self.naming.prefix + PROCESSOR_GROUP

    @property
    def member_id(self) -> str:
        """The instance's name in the group, `group.instance.id`."""
        return f"{self.group}.{self.instance_id}"

    @property
    def transactional_id(self) -> str:
        """The producer's identity over restarts."""
        return transactional_id(self.group, self.instance_id)


def transactional_id(group: str, instance_id: str) -> str:
    """The producer's identity over restarts, of one instance of a group."""
    return f"{group}.{instance_id}"


def changelog_name(group: str, inputs: Iterable[str]) -> str:
    """The topic that holds the state. quixstreams makes the name of the group and the inputs, so another set of inputs
    would begin with an empty state."""
    return f"changelog__{group}--{'--'.join(sorted(inputs))}--default"
