"""One session of one replica: take buckets, read, publish, set aside, store positions, give buckets back.

What a crash leaves behind, at each point: after the read, nothing; after a record was handed to Kafka or acknowledged,
a row that will be published again with the same `ce_id`; after a row was set aside, a row that will be found set aside
already; after positions were stored, nothing.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import TypeVar
from uuid import uuid4

import psycopg
import structlog
from tenacity import Retrying, retry_if_exception_type, stop_when_event_set, wait_exponential, wait_random
from tenacity.wait import wait_base

from relay.outbox.ahead import ReadAhead
from relay.outbox.config import OutboxConfig
from relay.outbox.domain import Entry, Group, Position, Progress, Snapshot, next_wait
from relay.outbox.leases import LeaseLostError, Leases
from relay.outbox.metrics import OutboxMetrics
from relay.outbox.publisher import Publisher, Refusal, Report
from relay.outbox.records import Outgoing, Row, outgoing
from relay.outbox.store import Dead, Page, Store
from schemas.errors import DecodeError
from schemas.reasons import DeadReason

_LOG = structlog.get_logger("rung.outbox")
_T = TypeVar("_T")
_BUCKET, _CREATED_MS = attrgetter("bucket"), attrgetter("created_ms")


def backoff(config: OutboxConfig) -> wait_base:
    """The pauses after a failure."""
    return wait_exponential(config.backoff_seconds, config.max_backoff_seconds) + wait_random(0, config.backoff_seconds)


def void(_result: object) -> None:
    """Drop a result where none is wanted."""


class Session:
    """A replica's life under one id, from joining until it is stopped or loses its lease."""

    def __init__(self, config: OutboxConfig, metrics: OutboxMetrics, stop: threading.Event) -> None:
        self._config = config
        self._metrics = metrics
        self._stop = stop
        self._replica = uuid4()
        self._progress = Progress()
        self._epochs: dict[int, int] = {}
        """The last epoch under which each bucket was held, also after it was given back."""
        self._surplus: frozenset[int] = frozenset()
        self._sparse: set[Position] = set()
        """Places in long reads where the table holds nothing for the group for a while."""
        self._dead: list[tuple[Dead, int, Entry]] = []
        self._refused: dict[int, Refusal] = {}
        self._published: Counter[str] = Counter()
        """Rows acknowledged and not counted in the metrics yet."""
        self._cut_off = False
        """Whether a record could not be handed over, so that none after it may be."""
        self._snapshot: Snapshot | None = None
        self._held_since = (0, 0.0)
        self._stored_at = self._observed_at = time.monotonic()
        self._wait = config.busy_poll_seconds
        self._breaks = 0
        self._broke_at = 0.0
        self._store = Store(config.database_url, self._replica)
        ahead = Store(config.database_url, self._replica)
        self._ahead = ReadAhead(ahead, config.page_rows, config.page_bytes)
        self._publisher = Publisher(config.kafka, config.naming)
        self._leases = Leases(config, self._replica, self._publisher.halt)

    def run(self) -> None:
        """Publish until `stop` is set, then finish what is in flight and give everything back.

        Raises:
            LeaseLostError: another replica may publish now; a new session is needed.
            psycopg.Error: the database could not be reached to begin with, or refuses a statement.
        """
        try:
            self._store.connect()
            self._leases.join()
            _LOG.info("session_started", replica=str(self._replica), name=self._config.replica)
            while not self._stop.is_set():
                self._step()
            self._finish()
        finally:
            self._config.ready(False)
            self._publisher.close()
            self._count()
            self._leases.leave()
            self._ahead.close()
            self._store.close()
            self._metrics.oldest_ms = None
            self._metrics.leased_buckets.set(0)

    def _step(self) -> None:
        self._config.beat()
        self._leases.check()
        self._share()
        found, more = self._read()
        self._publisher.poll(0)
        self._count()
        self._recover()
        self._bury()
        self._keep()
        if not more:
            self._pause(found)

    def _share(self) -> None:
        """Take what is newly leased, and give back what is not ours to keep once nothing of it is open."""
        share = self._leases.share
        for bucket, lease in share.leases.items():
            if lease.epoch > self._epochs.get(bucket, -1):
                self._progress.take(bucket, lease.position)
                self._epochs[bucket] = lease.epoch
        self._surplus = frozenset(b for b in share.surplus if b in self._progress)
        settled = [b for b in self._surplus if self._progress.settled(b)]
        if settled:
            self._save(settled, release=True)
        self._metrics.leased_buckets.set(len(self._progress))
        self._config.ready(bool(self._progress))

    def _read(self) -> tuple[bool, bool]:
        """Read and hand over one page of each group: whether there were rows, and whether more can be read now."""
        config = self._config
        if self._progress.waiting >= config.max_waiting:
            return True, False
        groups = self._progress.groups(config.max_waiting_per_bucket, self._surplus)
        walks = [g for g in groups if g.position.until is not None and g.position not in self._sparse]
        looks = [g for g in groups if g not in walks]
        self._sparse.clear()
        started = time.monotonic()
        config.at("outbox.read.before")
        pages = self._query(lambda: self._store.read(looks, config.page_rows, config.page_bytes)) or []
        if pages:
            config.at("outbox.read.after")
            self._metrics.poll_seconds.observe(time.monotonic() - started)
            self._snapshot = Snapshot.parse(pages[0].snapshot)
        for page in pages:
            self._publish(page)
        for group in walks:
            walk = self._query(partial(self._walk, group))
            if walk is None or self._cut_off:
                break
            self._publish(walk)
            pages.append(walk)
            if not walk.rows and walk.last_seq is not None:
                self._sparse.add(group.position._replace(after=walk.last_seq))
        self._metrics.oldest_ms = self._progress.oldest_ms()
        return any(page.rows for page in pages), any(page.last_seq is not None for page in pages)

    def _walk(self, group: Group) -> Page:
        """A page of a long read, and a request for the one after it."""
        page = self._ahead.take(group) or self._store.walk(group, self._config.page_rows, self._config.page_bytes)
        if page.rows and page.last_seq is not None:
            self._ahead.begin(group.after(page.snapshot, page.last_seq))
        return page

    def _publish(self, page: Page) -> None:
        rows, config, send = page.rows, self._config, self._publisher.send
        buckets, written_ms = [*map(_BUCKET, rows)], [*map(_CREATED_MS, rows)]
        entries = self._progress.page(page.group, buckets, written_ms, page.snapshot, page.last_seq)
        batches: dict[tuple[int, str], tuple[_Batch, Report]] = {}
        aside: set[int] = set()
        for row, bucket in zip(rows, buckets, strict=True):
            try:
                if self._refused and row.seq in self._refused:
                    raise DecodeError(*self._refused[row.seq])
                record = outgoing(row)
            except DecodeError as error:
                self._set_aside(row, entries[bucket], error.reason, error.detail)
                aside.add(row.seq)
                continue
            of = bucket, record.topic.name
            known = batches.get(of)
            if known is None:
                batch = _Batch(self, rows, aside, bucket, entries[bucket], record.topic.name)
                known = batches[of] = batch, self._publisher.report(batch)
            config.at("outbox.publish.before")
            if self._cut_off or (not send(record, *known) and not self._insist(record, *known)):
                return
            config.at("outbox.publish.after")

    def _insist(self, record: Outgoing, batch: "_Batch", report: Report) -> bool:
        """Hand a record over once there is room. False if that cannot be: nothing after it is taken either then, and
        all of it is read again, by this replica or the next one."""
        while not self._cut_off:
            self._publisher.poll(0.05)
            if self._publisher.send(record, batch, report):
                return True
            self._config.beat()
            self._leases.check()
            self._cut_off = self._publisher.broken is not None or self._stop.is_set()
        return False

    def acknowledged(self, batch: "_Batch") -> None:
        """Kafka has more rows of these."""
        self._config.at("outbox.acknowledge.before")
        rows, batch.acked = batch.acked, 0
        self._progress.settle(batch.bucket, batch.entry, rows)
        self._published[batch.topic] += rows
        self._config.at("outbox.acknowledge.after")

    def refused(self, batch: "_Batch", row: Row, refusal: Refusal) -> None:
        """Kafka does not take a row. It may come up again, if the producer broke over it."""
        self._refused[row.seq] = refusal
        self._set_aside(row, batch.entry, *refusal)

    def _count(self) -> None:
        """Tell the metrics what was acknowledged: for each row by itself it would be a good part of a row's cost."""
        for topic, number in self._published.items():
            self._metrics.published.labels(topic).inc(number)
        self._published.clear()

    def _set_aside(self, row: Row, entry: Entry, reason: DeadReason, detail: str) -> None:
        self._dead.append((Dead(row.seq, reason, detail), row.bucket, entry))

    def _bury(self) -> None:
        """Rows that can never be published: they are in `outbox_dead` before any position moves past them."""
        if not self._dead:
            return
        batch = list(self._dead)
        new = self._query(lambda: self._store.bury([dead for dead, _bucket, _entry in batch]))
        if new is None:
            return
        del self._dead[: len(batch)]
        for dead, bucket, entry in batch:
            self._progress.settle(bucket, entry)
            if dead.seq in new:
                self._metrics.dead.labels(dead.reason.value).inc()
                _LOG.warning("row_set_aside", seq=dead.seq, reason=dead.reason.value)

    def _recover(self) -> None:
        """A broken producer: begin again after the last row that was acknowledged without a gap."""
        if self._publisher.broken is None:
            return
        quiet = time.monotonic() - self._broke_at > 4 * self._config.max_backoff_seconds
        self._breaks = 1 if quiet else self._breaks + 1
        self._broke_at = time.monotonic()
        pause = min(self._config.backoff_seconds * 2 ** min(self._breaks - 1, 16), self._config.max_backoff_seconds)
        _LOG.warning("producer_broken", error=self._publisher.broken, again_in=pause)
        self._metrics.failures.labels("kafka").inc()
        self._stop.wait(pause)
        self._publisher.reset()
        self._progress.rewind()
        self._dead.clear()
        self._cut_off = False

    def _keep(self) -> None:
        """Store positions and set gauges, each in its time."""
        now = time.monotonic()
        idle_for = self._config.cursor_seconds if self._progress.changed() else self._config.cursor_idle_seconds
        # While a transaction holds back the server's clean-up, fewer updates leave fewer dead rows.
        held = now - self._held_since[1] if self._held_since[0] else 0.0
        if now - self._stored_at >= max(idle_for, min(held / 30, self._config.cursor_idle_seconds)):
            self._stored_at = now
            self._save(self._progress.done())
        if now - self._observed_at >= self._config.observe_seconds:
            self._observed_at = now
            self._observe(now)

    def _save(self, buckets: Iterable[int], release: bool = False) -> None:
        positions = self._progress.done(buckets)
        if not positions:
            return
        self._config.at("outbox.cursor.before")
        kept = self._query(lambda: self._store.save(positions, self._epochs, release))
        if kept is None:
            return
        self._config.at("outbox.cursor.after")
        if kept != set(positions):
            raise LeaseLostError("positions were refused: the epoch of a bucket moved on")
        self._progress.stored(positions)
        if release:
            for bucket in positions:
                self._progress.drop(bucket)
            _LOG.info("buckets_released", replica=str(self._replica), buckets=sorted(positions))

    def _observe(self, now: float) -> None:
        holder = self._snapshot.holder if self._snapshot is not None else None
        if holder is None:
            self._held_since = (0, 0.0)
        elif self._held_since[0] != holder:
            self._held_since = (holder, now)
        seen = self._query(lambda: self._store.holder(holder)) if holder is not None else None
        pid, age = seen or (0, now - self._held_since[1] if holder is not None else 0.0)
        self._metrics.held_by_pid.set(pid)
        self._metrics.held_seconds.set(age)
        self._metrics.waiting.set(self._progress.waiting)

    def _pause(self, found: bool) -> None:
        self._wait = next_wait(self._wait, found, self._config.busy_poll_seconds, self._config.idle_poll_seconds)
        if self._progress.waiting:
            self._publisher.poll(self._wait)
        else:
            self._stop.wait(self._wait)

    def _finish(self) -> None:
        """Wait for what is in flight, store, and give all buckets back, within the time for it."""
        deadline = time.monotonic() + self._config.shutdown_seconds
        while self._publisher.holds and time.monotonic() < deadline and self._publisher.broken is None:
            self._leases.check()
            self._publisher.poll(0.05)
            self._bury()
        self._bury()
        if self._progress.waiting:
            _LOG.warning("rows_left", replica=str(self._replica), rows=self._progress.waiting)
        self._publisher.halt()
        self._save(self._progress.done(), release=True)

    def _alive(self) -> None:
        self._config.beat()
        self._leases.check()

    def _query(self, call: Callable[[], _T]) -> _T | None:
        """Run a statement; if the server is away, come back connected again and with None.

        Raises:
            LeaseLostError: it was away for so long that the lease is over.
        """
        try:
            return call()
        except psycopg.OperationalError as error:
            _LOG.warning("postgres_away", error=type(error).__name__)
            self._metrics.failures.labels("postgres").inc()
        retrying = Retrying(
            wait=backoff(self._config),
            stop=stop_when_event_set(self._stop),
            retry=retry_if_exception_type(psycopg.OperationalError),
            before=lambda _state: self._alive(),
            sleep=lambda seconds: void(self._stop.wait(seconds)),
            reraise=True,
        )
        retrying(self._store.connect)
        return None


class _Batch:
    """The rows of one bucket and topic on one page that were handed over."""

    __slots__ = ("_aside", "_rows", "_session", "acked", "bucket", "entry", "topic")

    def __init__(
        self, session: Session, rows: Sequence[Row], aside: set[int], bucket: int, entry: Entry, topic: str
    ) -> None:
        """`rows` are the page's, and `aside` are those of them that are not published after all."""
        self._session = session
        self._rows = rows
        self._aside = aside
        self.acked = 0
        self.bucket = bucket
        self.entry = entry
        self.topic = topic

    def acknowledged(self) -> None:
        """Kafka has more of them."""
        self._session.acknowledged(self)

    def refused(self, key: bytes, value: bytes, refusal: Refusal) -> None:
        """Kafka does not take this one. Of two that are alike, each is refused by itself, and one stands for the
        other."""
        row = next(row for row in self._rows if self._is(row, key, value))
        self._aside.add(row.seq)
        self._session.refused(self, row, refusal)

    def _is(self, row: Row, key: bytes, value: bytes) -> bool:
        if (row.bucket, row.aggregatetype) != (self.bucket, self.topic) or row.seq in self._aside:
            return False
        return row.aggregateid.encode() == key and row.body is not None and row.body.encode() == value
