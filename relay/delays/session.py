"""The loop over both Kafka clients: read ahead, wait, forward what is due, and keep the positions exact."""

import logging
import threading
import time
from collections.abc import Iterable, Sequence

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from relay.delays.clock import WallClock
from relay.delays.config import DelaysConfig
from relay.delays.metrics import DelaysMetrics
from relay.delays.plan import SMALLEST
from relay.delays.progress import UnknownProgressError, decode_done, encode_done
from relay.delays.records import Held, output, read
from relay.delays.transactions import AbortedError, FencedError, SessionLostError, Transactions
from relay.delays.window import Window
from schemas.topics import TIERS, Tier

log = structlog.get_logger("rung.delays")

READ_BATCH = 2_000
MOST_IDLE_SECONDS = 0.1
"""How long the loop waits at most: it bounds how late a step of the clock, or a stop, is seen."""
LOOK_SECONDS = 1.0
COMMITTED_SECONDS = 30.0
"""How long to wait for committed positions that an open transaction of an instance that is gone keeps unstable: its
time-out of ten seconds, and as much again until the coordinator looks."""

Place = tuple[str, int]


class Session:
    """One consumer and one producer, from their start until a stop or a loss. All of it runs in one thread."""

    def __init__(self, config: DelaysConfig, stop: threading.Event, metrics: DelaysMetrics) -> None:
        self._config = config
        self._stop = stop
        self._metrics = metrics
        self._clock = WallClock()
        self._tiers: dict[str, Tier] = {config.naming(tier): tier for tier in TIERS}
        self._windows: dict[Place, Window[Held]] = {}
        self._paused: set[Place] = set()
        self._late: dict[str, int] = {}
        self._next_transaction = 0.0
        self._next_look = 0.0
        self._transactions = Transactions(config, stop)
        self._consumer = Consumer(consumer_settings(config), logger=logging.getLogger("rung.delays.consumer"))

    def run(self) -> None:
        """Forward records until told to stop.

        Raises:
            SessionLostError: begin a new session; nothing is lost.
            KafkaException: one of the consumer; a new session helps as well.
            FencedError: another client has this session's instance id.
        """
        self._transactions.open()
        self._consumer.subscribe(
            list(self._tiers), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )
        while not self._stop.is_set():
            self._turn()

    def close(self) -> None:
        """Leave; what is held in memory is read again by whoever is next."""
        self._config.ready(False)
        self._consumer.close()
        self._transactions.close()

    def _turn(self) -> None:
        self._config.beat()
        touched = self._read(self._idle_seconds())
        self._watch_clock()
        if time.monotonic() >= self._next_transaction:
            touched |= self._forward()
        self._pace(touched)
        if time.monotonic() >= self._next_look:
            self._look()

    def _idle_seconds(self) -> float:
        first = min((at for w in self._windows.values() if (at := w.first_release) is not None), default=None)
        if first is None:
            return MOST_IDLE_SECONDS
        wait = max((first - self._clock.now()) / 1000, self._next_transaction - time.monotonic(), 0.0)
        return min(wait, MOST_IDLE_SECONDS)

    # Reading

    def _read(self, seconds: float) -> set[Place]:
        first = self._consumer.poll(seconds)
        if first is None:
            return set()
        touched: set[Place] = set()
        now = self._clock.now()
        for message in (first, *self._consumer.consume(READ_BATCH - 1, 0)):
            error = message.error()
            if error is None:
                touched.add(self._take(message, now))
            elif error.fatal() or error.code() == KafkaError._FATAL:
                raise FencedError(error.str())
            else:
                log.warning("kafka_error", code=error.name())
        return touched

    def _take(self, message: Message, now: int) -> Place:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        place: Place = (topic, partition)
        window = self._windows.get(place)
        if window is None:
            return place
        if offset < window.next_offset:
            # Nothing here seeks back, so the topic begins anew: someone deleted and made it again.
            log.warning("topic_made_anew", topic=topic, partition=partition, offset=offset)
            window = self._windows[place] = self._window(self._tiers[topic], offset, set())
        if window.expects(offset):
            held = read(message, self._tiers[topic], now)
            window.hold(held)
            if held.late_ms:
                self._late[held.tier.name] = max(held.late_ms, self._late.get(held.tier.name, 0))
        return place

    def _pace(self, touched: Iterable[Place]) -> None:
        """Pause what has read far enough ahead, and resume what has room again."""
        for place in touched:
            window = self._windows.get(place)
            if window is None:
                continue
            more = window.wants_more()
            if more and place in self._paused:
                self._consumer.resume([TopicPartition(*place)])
                self._paused.discard(place)
            elif not more and place not in self._paused:
                self._consumer.pause([TopicPartition(*place)])
                self._paused.add(place)

    def _watch_clock(self) -> None:
        step = self._clock.step_ms()
        if not step:
            return
        log.warning("clock_stepped", step_ms=step)
        self._metrics.clock_steps.labels("back" if step < 0 else "forward").inc()
        if step < 0:
            now = self._clock.now()
            for (topic, _), window in self._windows.items():
                window.clock_set_back(now + self._tiers[topic].delay_ms)

    # Forwarding

    def _forward(self) -> set[Place]:
        started, now = time.monotonic(), self._clock.now()
        ready = [(at, place) for place, w in self._windows.items() if (at := w.first_release) is not None and at <= now]
        if not ready:
            return set()
        self._next_transaction = started + self._config.transaction_interval_seconds
        taken: dict[Place, list[Held]] = {}
        room = self._config.batch_size
        # The longest waiting first, so that a backlog in one partition does not starve the others.
        for _, place in sorted(ready):
            if room > 0 and (records := self._windows[place].due(now, room)):
                taken[place] = records
                room -= len(records)
        if taken:
            self._commit(taken, now, started)
        return set(taken)

    def _commit(self, taken: dict[Place, list[Held]], now: int, started: float) -> None:
        outputs = [output(held, now) for records in taken.values() for held in records]
        positions = []
        for (topic, partition), records in taken.items():
            position = self._windows[topic, partition].position(records)
            metadata = encode_done(position.low, position.done)
            positions.append(TopicPartition(topic, partition, position.low, metadata))
        try:
            self._transactions.commit(outputs, positions, self._consumer.consumer_group_metadata())
        except AbortedError as error:
            log.warning("transaction_aborted", code=error.code, records=len(outputs), refused=len(error.refused))
            self._metrics.transactions.labels("aborted").inc()
            for held in error.refused:
                held.refused()
            for place, records in taken.items():
                self._windows[place].put_back(records)
            return
        if len(outputs) == self._config.batch_size:
            # It leaves more that is due: there is nothing to collect by a pause, which would be the limit. One that was
            # aborted is not made again without a pause, however full.
            self._next_transaction = started
        self._metrics.committed(outputs, self._clock.now(), time.monotonic() - started)
        for place, records in taken.items():
            self._windows[place].settle(records)
            for held in records:
                _tell_if_dead(held)

    # Assignment

    def _window(self, tier: Tier, low: int, done: set[int]) -> Window[Held]:
        capacity = self._config.read_ahead_last if tier is SMALLEST else self._config.read_ahead
        return Window(low, done, capacity, self._config.read_ahead_bytes)

    def _on_assign(self, consumer: Consumer, given: Sequence[TopicPartition]) -> None:
        if not given:
            self._config.ready(True)
            return
        starts = []
        for at in self._committed(consumer, given):
            low, done = max(0, at.offset), self._done(at)
            self._windows[at.topic, at.partition] = self._window(self._tiers[at.topic], low, done)
            self._paused.discard((at.topic, at.partition))
            starts.append(TopicPartition(at.topic, at.partition, at.offset if at.offset >= 0 else OFFSET_BEGINNING))
        consumer.incremental_assign(starts)
        # A pause survives an assignment.
        consumer.resume(starts)
        self._config.ready(True)
        log.info("partitions_assigned", count=len(given), held=len(self._windows))

    def _on_revoke(self, _: Consumer, taken: Sequence[TopicPartition]) -> None:
        for at in taken:
            self._windows.pop((at.topic, at.partition), None)
            self._paused.discard((at.topic, at.partition))
        log.info("partitions_revoked", count=len(taken), held=len(self._windows))

    def _committed(self, consumer: Consumer, given: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The committed positions, once no open transaction may still change them."""
        deadline = time.monotonic() + COMMITTED_SECONDS
        while True:
            try:
                found: list[TopicPartition] = consumer.committed(list(given), timeout=2.0)
                code = next((at.error.name() for at in found if at.error is not None), None)
            except KafkaException as error:
                found, code = [], error.args[0].name()
            if code is None:
                return found
            if self._stop.is_set() or time.monotonic() >= deadline:
                raise SessionLostError(code)
            log.info("positions_awaited", code=code)
            self._config.beat()
            self._stop.wait(0.1)

    def _done(self, at: TopicPartition) -> set[int]:
        try:
            return decode_done(at.offset, at.metadata) if at.offset >= 0 else set()
        except UnknownProgressError as error:
            # A repeated wake-up is harmless; a lost one is not.
            log.warning("progress_unknown", topic=at.topic, partition=at.partition, error=str(error))
            return set()

    # Watching

    def _look(self) -> None:
        held: dict[str, int] = {}
        oldest: dict[str, int] = {}
        for (topic, _), window in self._windows.items():
            name = self._tiers[topic].name
            held[name] = held.get(name, 0) + window.held
            first = window.first_release
            # A record that cannot be forwarded leaves at 0, and is not overdue.
            if first:
                oldest[name] = min(first, oldest.get(name, first))
        self._metrics.looked(len(self._windows), held, oldest, self._late)
        self._late = {}
        self._next_look = time.monotonic() + LOOK_SECONDS


def _tell_if_dead(held: Held) -> None:
    if held.dead is not None:
        reason, topic = held.dead.reason.value, held.tier.topic
        log.warning("dead_letter", reason=reason, topic=topic, partition=held.partition, offset=held.offset)


def consumer_settings(config: DelaysConfig) -> dict[str, object]:
    """The settings of the consumer."""
    session_ms = int(config.session_timeout_seconds * 1000)
    return {
        **config.kafka,
        "group.id": config.group,
        "group.instance.id": config.instance_id,
        "partition.assignment.strategy": "cooperative-sticky",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": max(100, session_ms // 3),
        # A partition that is resumed joins the next fetch, so this is how long it may stay without records. (With every
        # partition of a broker paused it is a second: the client's thread for that broker then sleeps as long.)
        "fetch.wait.max.ms": 100,
        # The default of ten seconds would keep what is due waiting after Kafka is back.
        "reconnect.backoff.max.ms": 1_000,
        # Per partition; the window holds what is needed, and the client's own queue stays small behind it.
        "queued.max.messages.kbytes": 1_024,
        "fetch.queue.backoff.ms": 50,
    }
