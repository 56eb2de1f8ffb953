"""The journal's loop: read `delivery-events`, write a batch, go on; and the upkeep of its partitions."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import psycopg
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from prometheus_client import CollectorRegistry
from tenacity import RetryCallState, Retrying, retry_if_exception, sleep_using_event, wait_exponential, wait_random

from relay.journal import partitions
from relay.journal.config import JournalConfig
from relay.journal.consumer import consumer_settings, describe, start_of
from relay.journal.dead import DeadLetters, UndeliveredError
from relay.journal.events import Batch, Entry, place, read, set_aside
from relay.journal.faults import Fault, classify
from relay.journal.metrics import JournalMetrics
from relay.journal.store import FencedError, Store
from schemas.reasons import DeadReason
from schemas.topics import DAY_MS, DELIVERY_EVENTS

log = structlog.get_logger("rung.journal")
T = TypeVar("T")

SWITCH_SECONDS = 0.0005
FENCE_SECONDS = 60.0
JOIN_SECONDS = 30.0
"""A session that has got no answer from its group for so long gives way to another: after a broker was frozen the
client may wait for one that never comes."""
LOOK_SECONDS = 1.0
DAYS_AHEAD = 2
"""Partitions made before they are needed: today's, tomorrow's and one more, for a clock that is ahead."""


def run(config: JournalConfig, stop: threading.Event, registry: CollectorRegistry) -> None:
    """Write the journal until `stop` is set.

    Raises:
        psycopg.Error: the database lacks the migrations or the rights.
        KafkaException: a fault that the consumer does not survive.
    """
    # The writing thread gets the interpreter ten times sooner than it would: it asks for it at each turn to the server,
    # and the other one, which decodes, does not let go by itself.
    sys.setswitchinterval(SWITCH_SECONDS)
    Journal(config, stop, JournalMetrics(registry)).run()


class Stopping(Exception):  # noqa: N818 - no error: the way out of a wait when the service is told to stop
    """The service was told to stop while it waited for PostgreSQL or Kafka; nothing of the batch was written."""


@dataclass(slots=True)
class Position:
    """Where one assigned partition stands."""

    stored: int
    """What `rung.journal_offset` says: the fence."""
    next: int
    """The next offset to read; beyond `stored` by what is being written, and other where the topic was made anew."""


class Journal:
    """One replica: one thread reads and decodes a batch while another one writes the batch before it.

    At most one batch is being written. The database is the writing thread's until `_settle` has its result.
    """

    def __init__(self, config: JournalConfig, stop: threading.Event, metrics: JournalMetrics) -> None:
        self._config = config
        self._stop = stop
        self._metrics = metrics
        self._topic = config.naming(DELIVERY_EVENTS)
        self._store = Store(config.database_url, self._topic)
        self._dead = DeadLetters(config.kafka, config.naming, stop)
        self._assigned: dict[int, Position] = {}
        self._days: set[int] = set()
        self._next_upkeep = self._next_look = 0.0
        self._commit_may_stand = False
        self._fenced_at = -FENCE_SECONDS
        self._joining_since: float | None = None
        self._writer = ThreadPoolExecutor(1, "journal-writer")
        self._writing: tuple[Batch, Future[list[Entry]]] | None = None

    def run(self) -> None:
        """Read and write until told to stop."""
        try:
            with self._store, self._writer:
                self._persist(self._upkeep)
                self._persist(self._know_kinds)
                while not self._stop.is_set():
                    self._session()
        except Stopping:
            log.info("journal_stopped_in_retry")
        finally:
            self._config.ready(False)
            log.info("journal_stopped")

    def _session(self) -> None:
        """One consumer, until told to stop or until it cannot go on.

        A first fence begins another session: a broker that was frozen can make a member fence itself. A second one
        within a minute proves another process with the same instance id, and ends this one.
        """
        consumer = Consumer(consumer_settings(self._config), logger=None)
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
            log.info("journal_started", topic=self._topic)
            self._joining_since = time.monotonic()
            while not self._stop.is_set():
                self._turn(consumer)
                if self._joining_since is not None and time.monotonic() - self._joining_since > JOIN_SECONDS:
                    log.warning("session_without_a_share", seconds=JOIN_SECONDS)
                    break
            self._settle(consumer)
        except KafkaException as error:
            now, fault = time.monotonic(), error.args[0]
            if not _is_fatal(fault) or now - self._fenced_at < FENCE_SECONDS:
                raise
            self._fenced_at = now
            log.warning("session_lost", code=fault.name(), detail=fault.str())
        finally:
            self._config.ready(False)
            consumer.close()

    def _turn(self, consumer: Consumer) -> None:
        self._config.beat()
        messages = consumer.consume(self._config.batch_size, self._config.linger_seconds)
        mine = [m for m in messages if self._is_next(m)]
        batch = self._decode(mine) if mine else None
        going_on = self._settle(consumer)
        if batch is not None and going_on:
            self._begin(batch)
        elif not messages:
            self._metrics.lag.set(0)
        if time.monotonic() >= self._next_upkeep:
            self._settle(consumer)
            self._persist(self._upkeep)
        if time.monotonic() >= self._next_look:
            self._look(consumer)

    def _look(self, consumer: Consumer) -> None:
        self._next_look = time.monotonic() + LOOK_SECONDS
        places = {}
        for partition, at in self._assigned.items():
            try:
                end = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), cached=True)[1]
            except KafkaException:
                continue
            places[self._topic, partition] = (at.next, end)
        self._config.progress(places)

    def _is_next(self, message: Message) -> bool:
        """Drop errors, and what a rebalance or a step back brought from before the position."""
        error = message.error()
        if error is not None:
            if _is_fatal(error):
                raise KafkaException(error)
            log.warning("kafka_error", code=error.name())
            return False
        partition, offset = place(message)
        position = self._assigned.get(partition)
        return position is not None and offset >= position.next

    def _decode(self, messages: Sequence[Message]) -> Batch:
        now = now_ms()
        return read(messages, now=now, oldest_at=partitions.oldest_day(now, self._config.retention_days) * DAY_MS)

    def _begin(self, batch: Batch) -> None:
        """Let a batch be written, and go on reading behind it."""
        expected = {p: self._assigned[p].stored for p in batch.next_offsets}
        for partition, offset in batch.next_offsets.items():
            self._assigned[partition].next = offset
        self._writing = batch, self._writer.submit(self._write, batch, expected)

    def _write(self, batch: Batch, expected: Mapping[int, int]) -> list[Entry]:
        self._commit_may_stand = False
        with self._metrics.batch.time():
            return self._persist(lambda: self._transaction(batch, expected))

    def _settle(self, consumer: Consumer) -> bool:
        """Wait for what is being written. False if it was not: then all is read again from where the table stands."""
        written = self._written(consumer)
        if not written:
            self._reposition(consumer)
        return written

    def _written(self, consumer: Consumer) -> bool:
        """Wait for what is being written and account for it. False if another writer was faster."""
        if self._writing is None:
            return True
        batch, writing = self._writing
        self._writing = None
        try:
            new = writing.result()
        except FencedError as error:
            self._metrics.fenced.inc()
            log.warning("fenced", detail=str(error))
            return False
        self._account(batch, new)
        self._show_progress(consumer, batch)
        return True

    def _transaction(self, batch: Batch, expected: Mapping[int, int]) -> list[Entry]:
        missing = batch.days - self._days
        if missing:
            partitions.ensure(self._store.connection(), missing)
            self._days |= missing
        self._dead.write(batch.set_aside)
        self._config.at("journal.transaction.before")
        try:
            new = self._store.write(batch.entries, expected, batch.next_offsets, lambda bad: self._refuse(batch, bad))
            self._config.at("journal.transaction.after")
            return new
        except FencedError:
            # Where the connection broke in a commit, the offsets tell whether that commit stands.
            if self._commit_may_stand and self._store.positions(list(batch.next_offsets)) == batch.next_offsets:
                return batch.entries
            raise

    def _refuse(self, batch: Batch, bad: list[tuple[Entry, psycopg.Error]]) -> None:
        """What decodes and PostgreSQL does not take, such as a NUL in a text, is a dead letter too."""
        letters = [
            set_aside(entry.message, DeadReason.BAD_FIELD, f"not storable: {describe(error)}", now_ms(), refused=True)
            for entry, error in bad
        ]
        self._dead.write(letters)
        # In place of those of an attempt whose commit broke.
        batch.set_aside = [item for item in batch.set_aside if not item.refused] + letters

    def _account(self, batch: Batch, new: Sequence[Entry]) -> None:
        for partition, offset in batch.next_offsets.items():
            self._assigned[partition].stored = offset
        self._metrics.written(new)
        self._metrics.past_retention.inc(batch.past_retention)
        self._metrics.repeats.inc(len(batch.entries) - len(new) - sum(s.refused for s in batch.set_aside))
        if batch.entries:
            self._metrics.lag.set(max(0.0, (now_ms() - batch.entries[-1].event.at) / 1000))
        for item in batch.set_aside:
            letter = item.letter
            self._metrics.dead_letters.labels(letter.service, letter.reason.value).inc()
            log.warning("dead_letter", reason=letter.reason.value, partition=letter.partition, offset=letter.offset)

    def _show_progress(self, consumer: Consumer, batch: Batch) -> None:
        """Commit to the group as well, for the tools that watch lag there; the table is what counts."""
        done = [TopicPartition(self._topic, p, o) for p, o in batch.next_offsets.items()]
        self._config.at("journal.commit.before")
        try:
            consumer.commit(offsets=done, asynchronous=True)
        except KafkaException as error:
            log.debug("group_commit_failed", code=error.args[0].name())
        self._config.at("journal.commit.after")

    # Positions

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        try:
            self._assigned = self._persist(lambda: self._positions(consumer, [tp.partition for tp in given]))
        except Stopping:
            self._assigned = {}
        starts = [start_of(self._topic, partition, at.next) for partition, at in self._assigned.items()]
        consumer.assign(starts)
        self._joining_since = None
        self._config.ready(True)
        log.info("partitions_assigned", partitions=sorted(self._assigned))

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        self._config.ready(False)
        self._joining_since = time.monotonic()
        with contextlib.suppress(Stopping):
            self._written(consumer)
        self._assigned = {}
        log.info("partitions_revoked", partitions=sorted(tp.partition for tp in taken))

    def _positions(self, consumer: Consumer, numbers: Sequence[int]) -> dict[int, Position]:
        stored = self._store.positions(numbers)
        return {p: Position(offset, self._checked(consumer, p, offset)) for p, offset in stored.items()}

    def _checked(self, consumer: Consumer, partition: int, offset: int) -> int:
        """The offset to read from: the stored one, unless the topic cannot have it. Then say what happened."""
        if offset == 0 or self._stop.is_set():
            return offset
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=5)
        except KafkaException:
            return offset
        if high < offset:
            log.warning("topic_made_anew", partition=partition, stored=offset, end=high)
            return int(low)
        if low > offset:
            log.error("events_lost_by_topic_retention", partition=partition, stored=offset, begin=low)
        return offset

    def _reposition(self, consumer: Consumer) -> None:
        """Another writer moved on: take its offsets, and read from there."""
        numbers = sorted(self._assigned)
        self._assigned = self._persist(lambda: self._positions(consumer, numbers))
        for partition, at in self._assigned.items():
            consumer.seek(start_of(self._topic, partition, at.next))

    # Upkeep

    def _upkeep(self) -> None:
        today = now_ms() // DAY_MS
        connection = self._store.connection()
        self._days = set(range(today, today + DAYS_AHEAD + 1))
        made = partitions.ensure(connection, self._days)
        dropped = partitions.drop_before(connection, partitions.oldest_day(now_ms(), self._config.retention_days))
        if made or dropped:
            log.info("partitions_kept", made=made, dropped=dropped)
        self._next_upkeep = time.monotonic() + self._config.maintenance_seconds

    def _know_kinds(self) -> None:
        """Start the series of the published kinds at zero, where kinds are published."""
        connection = self._store.connection()
        row = connection.execute("SELECT to_regclass('rung.kind') IS NOT NULL").fetchone()
        if row is None or not row[0]:
            return
        try:
            for (name,) in connection.execute("SELECT name FROM rung.kind").fetchall():
                self._metrics.know_kind(str(name))
        except psycopg.errors.InsufficientPrivilege:
            log.info("kinds_not_readable")

    def _persist(self, work: Callable[[], T]) -> T:
        """Do `work` until PostgreSQL and Kafka let it, with a backoff.

        Raises:
            Stopping: told to stop before that.
            FencedError: by `work`.
            psycopg.Error: a fault of ours.
        """
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_exponential(multiplier=0.1, max=5.0) + wait_random(0, 0.1),
            sleep=sleep_using_event(self._stop),
            stop=lambda _: self._stop.is_set(),
            before_sleep=self._before_retry,
            reraise=True,
        )
        try:
            return retrying(work)
        except Exception as error:
            if _may_pass(error) and self._stop.is_set():
                raise Stopping from error
            raise

    def _before_retry(self, attempt: RetryCallState) -> None:
        error = attempt.outcome.exception() if attempt.outcome else None
        self._config.beat()
        self._metrics.retries.inc()
        self._commit_may_stand = True
        self._days.clear()
        self._store.disconnect()
        log.warning("journal_waits", attempt=attempt.attempt_number, error=describe(error))


def _is_fatal(error: KafkaError) -> bool:
    # What the consumer hands out in place of a record says so by its code alone.
    return bool(error.fatal()) or error.code() == KafkaError._FATAL


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, UndeliveredError) or (
        isinstance(error, psycopg.Error) and classify(error) is Fault.DATABASE
    )


def now_ms() -> int:
    """The wall clock in milliseconds."""
    return time.time_ns() // 1_000_000
