"""Reads the worker's topics in a thread of its own: co-assigned partitions, and the read-back on assignment.

One group member reads `deliveries`, `resolutions`, `recipients` and `outcomes`. Range assignment gives it the same
partition numbers of each, because each topic has the same number of partitions. Only `deliveries` goes on from a
committed offset. The others are read back for the time that still matters, on every assignment, and then followed.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from processor.delivery.config import DeliveryConfig
from processor.delivery.hearing import INTERVAL_MS, Hearing
from schemas.topics import DELIVERIES, OUTCOMES, RECIPIENTS, RESOLUTIONS, Topic

GROUP = "rung-deliver"
TOPICS = (DELIVERIES, RESOLUTIONS, RECIPIENTS, OUTCOMES)
FOLLOWED = (RESOLUTIONS, RECIPIENTS, OUTCOMES)
BATCH = 500
POLL_SECONDS = 0.1
REQUEST_SECONDS = 10.0
RETRY_SECONDS = 0.2
ASSIGN_SECONDS = 60.0
"""How long to go on asking for the offsets of a new assignment; well under the five minutes after which the group
takes a member that does not poll for dead."""

_T = TypeVar("_T")
_log = structlog.get_logger("rung.delivery")


class SourceError(RuntimeError):
    """The topics are not what the worker needs; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A partition that this worker got."""

    partition: int
    barriers: Mapping[str, int]
    """Per followed topic (catalogue name) the offset up to which it must be read before the first call; topics
    with nothing to read back are absent."""
    dead_letters_from: int
    """The first offset of `recipients` whose dead letter has not been written."""


class Handler(Protocol):
    """Who is told about assignments; called in the event loop."""

    def assigned(self, assignments: Sequence[Assignment]) -> None:
        """Partitions were given to this worker."""

    async def revoked(self, partitions: Sequence[int]) -> Mapping[str, Mapping[int, int]]:
        """Partitions go away: finish with them, and return per catalogue topic the offsets to commit."""

    def lost(self, partitions: Sequence[int]) -> None:
        """Partitions are gone already; nothing can be committed."""


class Source:
    """The consumer. Its methods are called from the event loop; Kafka's from one thread."""

    def __init__(self, config: DeliveryConfig, handler: Handler, loop: asyncio.AbstractEventLoop) -> None:
        self._config = config
        self._handler = handler
        self._loop = loop
        self._names = {topic.name: config.naming(topic) for topic in TOPICS}
        self._catalogue = {config.naming(topic): topic for topic in TOPICS}
        self._batch: list[Message] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="consumer")
        self._hearing = Hearing()
        self._consumer = Consumer({**_settings(config), "stats_cb": self._hearing.take})
        self.partitions = 0

    @property
    def heard_at(self) -> float:
        """The moment, on the monotonic clock in seconds, up to which the brokers of the partitions were heard."""
        return self._hearing.heard_at

    async def start(self) -> None:
        """Join the group.

        Raises:
            SourceError: a topic is missing, or the topics have different numbers of partitions.
            KafkaException: Kafka cannot be reached.
        """
        await self._run(self._start)

    async def poll(self) -> list[Message]:
        """The next messages and ends of partitions, after at most a tenth of a second.

        Raises:
            KafkaException: the consumer cannot go on.
        """
        return await self._run(self._poll)

    def topic(self, message: Message) -> Topic:
        """The catalogue's topic of a message."""
        return self._catalogue[message.topic() or ""]

    def pause(self, partition: int) -> None:
        """Leave the claims of a partition in Kafka."""
        # The partition may be on its way to another worker at this moment.
        with contextlib.suppress(KafkaException):
            self._consumer.pause([TopicPartition(self._names[DELIVERIES.name], partition)])

    def resume(self, partition: int) -> None:
        """Read the claims of a partition again."""
        with contextlib.suppress(KafkaException):
            self._consumer.resume([TopicPartition(self._names[DELIVERIES.name], partition)])

    def commit(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Commit in the background. A refusal is no harm: the next commit, or the next owner, repeats it."""
        positions = self._positions(offsets)
        if positions:
            self._config.at("delivery.commit.before")
            with contextlib.suppress(KafkaException):
                self._consumer.commit(offsets=positions, asynchronous=True)
            self._config.at("delivery.commit.after")

    def end(self, partition: int) -> int:
        """Where the claims of a partition end, as far as the client knows without asking; 0 if it does not."""
        place = TopicPartition(self._names[DELIVERIES.name], partition)
        with contextlib.suppress(KafkaException):
            return max(0, int(self._consumer.get_watermark_offsets(place, cached=True)[1]))
        return 0

    async def commit_now(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Commit and wait for it."""
        await self._run(lambda: self._commit_now(offsets))

    async def close(self) -> None:
        """Leave the group (a static member stays in it until its session ends) and stop the thread."""
        try:
            await self._run(self._consumer.close)
        finally:
            self._thread.shutdown(wait=False)

    async def _run(self, function: Callable[[], _T]) -> _T:
        return await self._loop.run_in_executor(self._thread, function)

    def _start(self) -> None:
        counts = {}
        for name in self._names.values():
            metadata = self._consumer.list_topics(name, timeout=REQUEST_SECONDS).topics[name]
            if metadata.error is not None or not metadata.partitions:
                raise SourceError(f"topic {name} does not exist: create the topics of the catalogue first")
            counts[name] = len(metadata.partitions)
        if len(set(counts.values())) != 1:
            listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise SourceError(f"the topics must have the same number of partitions: {listed}")
        self.partitions = next(iter(counts.values()))
        self._consumer.subscribe(
            list(self._names.values()), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _poll(self) -> list[Message]:
        # One by one: a batch that the client makes takes the end of a partition for a record, and after a pause it
        # would go on one record too far.
        message = self._consumer.poll(POLL_SECONDS)
        while message is not None:
            if self._is_usable(message):
                self._batch.append(message)
            if len(self._batch) >= BATCH:
                break
            message = self._consumer.poll(0)
        batch, self._batch = self._batch, []
        return batch

    def _is_usable(self, message: Message) -> bool:
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.fatal() or not (error.retriable() or error.code() in _PASSING):
            raise KafkaException(error)
        _log.warning("consumer_error", code=error.name())
        return False

    def _on_assign(self, consumer: Consumer, assigned: Sequence[TopicPartition]) -> None:
        numbers = sorted({tp.partition for tp in assigned if tp.topic == self._names[DELIVERIES.name]})
        starts, assignments = self._starts(numbers)
        if {(tp.topic, tp.partition) for tp in starts} != {(tp.topic, tp.partition) for tp in assigned}:
            raise SourceError(
                "the group gave different partitions of the topics: all its members must read the same topics with the "
                "range assignor"
            )
        consumer.assign(starts)
        # A pause outlives an assignment.
        consumer.resume([TopicPartition(tp.topic, tp.partition) for tp in starts])
        self._loop.call_soon_threadsafe(self._handler.assigned, assignments)

    def _starts(self, numbers: Sequence[int]) -> tuple[list[TopicPartition], list[Assignment]]:
        starts = [TopicPartition(self._names[DELIVERIES.name], n) for n in numbers]
        barriers: dict[int, dict[str, int]] = {n: {} for n in numbers}
        now = round(time.time() * 1000)
        for topic in FOLLOWED:
            keep = self._config.answers_keep_ms if topic is OUTCOMES else self._config.guard_keep_ms
            # The ends are asked first: what is written after that is at or above them, and is read in any case.
            ends = {n: self._end(topic, n) for n in numbers}
            wanted = [TopicPartition(self._names[topic.name], n, now - keep) for n in numbers]
            for found in self._since(wanted):
                if found.error is not None:
                    raise KafkaException(found.error)
                end = ends[found.partition]
                start = found.offset if found.offset >= 0 else end
                starts.append(TopicPartition(found.topic, found.partition, start))
                if start < end:
                    barriers[found.partition][topic.name] = end
        letters = self._committed(RECIPIENTS, numbers)
        return starts, [Assignment(n, barriers[n], letters[n]) for n in numbers]

    def _since(self, wanted: list[TopicPartition]) -> list[TopicPartition]:
        """The first offsets at or after the times that stand in place of offsets."""
        if not wanted:
            return []
        return _patiently(lambda: self._consumer.offsets_for_times(wanted, timeout=REQUEST_SECONDS))

    def _end(self, topic: Topic, partition: int) -> int:
        place = TopicPartition(self._names[topic.name], partition)
        _, high = _patiently(lambda: self._consumer.get_watermark_offsets(place, timeout=REQUEST_SECONDS))
        return int(high)

    def _committed(self, topic: Topic, numbers: Sequence[int]) -> dict[int, int]:
        places = [TopicPartition(self._names[topic.name], n) for n in numbers]
        if not places:
            return {}
        found = _patiently(lambda: self._consumer.committed(places, timeout=REQUEST_SECONDS))
        return {tp.partition: 0 if tp.offset == OFFSET_INVALID else int(tp.offset) for tp in found}

    def _on_revoke(self, _consumer: Consumer, revoked: Sequence[TopicPartition]) -> None:
        numbers = self._forget(revoked)
        offsets = asyncio.run_coroutine_threadsafe(self._handler.revoked(numbers), self._loop).result()
        self._commit_now(offsets)

    def _on_lost(self, _consumer: Consumer, lost: Sequence[TopicPartition]) -> None:
        self._loop.call_soon_threadsafe(self._handler.lost, self._forget(lost))

    def _forget(self, gone: Sequence[TopicPartition]) -> list[int]:
        """Messages of this batch that were read before are read again by the next owner."""
        places = {(tp.topic, tp.partition) for tp in gone}
        self._batch = [m for m in self._batch if (m.topic(), m.partition()) not in places]
        return sorted({tp.partition for tp in gone})

    def _commit_now(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        positions = self._positions(offsets)
        if not positions:
            return
        try:
            self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            # The outcomes are written and the next owner reads them back, so nothing is called twice.
            _log.warning("commit_failed", code=error.args[0].name())

    def _positions(self, offsets: Mapping[str, Mapping[int, int]]) -> list[TopicPartition]:
        return [
            TopicPartition(self._names[topic], partition, offset)
            for topic, found in offsets.items()
            for partition, offset in found.items()
        ]


_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        # What the client knew of the leaders is older than the broker's restart; its next look at them ends that.
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)


def _patiently(ask: Callable[[], _T]) -> _T:
    """Ask the broker again while it cannot answer; a leader may just be moving."""
    give_up = time.monotonic() + ASSIGN_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as error:
            reason = error.args[0]
            if time.monotonic() > give_up or not (reason.retriable() or reason.code() in _PASSING):
                raise
            _log.warning("assignment_waits", code=reason.name())
            time.sleep(RETRY_SECONDS)


def _settings(config: DeliveryConfig) -> dict[str, str | int | bool]:
    settings: dict[str, str | int | bool] = {
        **config.kafka,
        "group.id": config.naming.prefix + GROUP,
        # Equal partition numbers of all topics; cooperative assignors do not promise that.
        "partition.assignment.strategy": "range",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "session.timeout.ms": config.session_timeout_ms,
        "heartbeat.interval.ms": min(3_000, config.session_timeout_ms // 3),
        # A partition that is resumed or new waits for the fetch under way; this is how long that may be.
        "fetch.wait.max.ms": 100,
        "statistics.interval.ms": INTERVAL_MS,
        # Claims carry data of up to a megabyte; the memory for what is fetched ahead is bounded here.
        "queued.max.messages.kbytes": 16_384,
    }
    if config.instance_id is not None:
        settings["group.instance.id"] = config.instance_id
    return settings
