"""The data plane of an engine whose group membership is somebody else's: from the positions of its share to commits.

A thread of its own holds at most one share, and does for it, in this order: ask for the committed positions, wait until
they are final; read the state back to the end of its changelog; then read inputs, decide, write, and commit outputs,
changelog and positions in one transaction, until the share is taken away. The committed positions are the only truth
about what was processed: nothing else is remembered from one share to the next. Local state is written after the
commit, with the changelog offset that it reaches to, in one step.

Whatever fails ends the plane, and with it the process. What was not committed is done again by whoever holds the
partitions next.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from processor.engine.changelog import FAMILY, FAMILY_HEADER, OFFSETS_HEADER
from processor.engine.clients import reading
from processor.engine.config import ProcessorConfig
from processor.engine.inputs import Inputs
from processor.engine.lag import Lookout
from processor.engine.partitions import OpenPartition, PartitionStore, restore
from processor.engine.port import StopTimeoutError
from processor.engine.transaction import Transactions

BACKLOG_COMMITS = 4
"""How many commit intervals one transaction may hold while there is always more to do than can be done."""
ASK_SECONDS = 0.1
"""How long to wait before asking for positions again that are not final yet."""
_HEADERS = [(FAMILY_HEADER, FAMILY.encode()), (OFFSETS_HEADER, b"null")]
_NOT_YET = frozenset({KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError.COORDINATOR_LOAD_IN_PROGRESS})

_log = structlog.get_logger("rung.processor")


@dataclass(frozen=True, eq=False)
class Share:
    """What one generation of the group gave this instance."""

    partitions: frozenset[int]
    """Of every input and of the changelog; may be none."""
    member: bytes
    """The group's metadata, in whose name positions are committed."""
    restored: Future[None] = field(default_factory=Future, repr=False)
    """Done when the state is read back and the work begins."""


class DataPlane:
    """The thread and what it holds. `open`, `release` and `stop` may be called from any thread."""

    def __init__(
        self,
        config: ProcessorConfig,
        inputs: Inputs,
        lookout: Lookout,
        changelog: str,
        store: Callable[[int], PartitionStore],
    ) -> None:
        """Prepare it.

        Args:
            config: the processor's.
            inputs: what becomes of records.
            lookout: what is told of the lag.
            changelog: the topic that holds the state.
            store: opens the local copy of a partition of it; called in the plane's thread, for each share anew.
        """
        self._config = config
        self._inputs = inputs
        self._lookout = lookout
        self._changelog = changelog
        self._store = store
        self._transactions = Transactions(config)
        self._consumer = Consumer(
            {
                **config.kafka,
                **reading(),
                # Positions are asked for in the group's name; the group is joined by the membership.
                "group.id": config.group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._positions: dict[tuple[str, int], int] = {}
        self._ran_dry = True
        self._changed = threading.Condition()
        self._wanted: Share | None = None
        self._held: Share | None = None
        self._stopping = False
        self.error: BaseException | None = None
        """Why the plane ended, if it failed."""
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="processor", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def open(self, share: Share) -> None:
        """Begin with a share; the one before must have been released."""
        # Nobody's waiting for it may be given up in its stead.
        share.restored.set_running_or_notify_cancel()
        with self._changed:
            self._wanted = share
            self._changed.notify_all()

    def release(self, seconds: float) -> None:
        """Finish what is in hand, commit it, and let the share go.

        Raises:
            StopTimeoutError: that took longer than `seconds`.
        """
        with self._changed:
            self._wanted = None
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._held is None, seconds):
                raise StopTimeoutError(f"the transaction in hand did not end within {seconds:.0f} s")

    def stop(self, seconds: float) -> None:
        """Release the share and end the thread. StopTimeoutError as `release`."""
        with self._changed:
            self._stopping = True
            self._wanted = None
            self._changed.notify_all()
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise StopTimeoutError(f"the processor did not end within {seconds:.0f} s")

    def _work(self) -> None:
        try:
            self._transactions.take_over()
            while (share := self._next()) is not None:
                try:
                    self._serve(share)
                finally:
                    self._config.ready(False)
                    with self._changed:
                        self._held = None
                        self._changed.notify_all()
            self._consumer.close()
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()

    def _next(self) -> Share | None:
        with self._changed:
            # There is no beat here: a group that gives this instance no share, not even an empty one, stands still.
            self._changed.wait_for(lambda: self._wanted is not None or self._stopping)
            self._held = self._wanted
            return self._held

    def _is_wanted(self, share: Share) -> bool:
        return self._wanted is share

    def _serve(self, share: Share) -> None:
        self._positions = self._committed(share)
        stores = {partition: self._store(partition) for partition in sorted(share.partitions)}
        started = time.monotonic()
        count = restore(self._config, self._changelog, stores, lambda: self._is_wanted(share))
        if not self._is_wanted(share):
            return
        _log.info(
            "share_taken",
            partitions=sorted(share.partitions),
            restored=count,
            seconds=round(time.monotonic() - started, 3),
        )
        states = {partition: OpenPartition(store) for partition, store in stores.items()}
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._positions.items()])
        self._config.ready(True)
        share.restored.set_result(None)
        try:
            while self._is_wanted(share):
                self._turn(share, states)
                if self._lookout.due():
                    self._lookout.look(self._consumer, self._has_run_dry, self._positions)
        finally:
            self._consumer.unassign()

    def _committed(self, share: Share) -> dict[tuple[str, int], int]:
        """The positions of a share, once no transaction that is still open could change them."""
        asked = [TopicPartition(topic, partition) for topic in self._inputs.topics for partition in share.partitions]
        deadline = time.monotonic() + self._config.poll_limit_seconds
        while asked and self._is_wanted(share):
            self._config.beat()
            try:
                found = self._consumer.committed(asked, timeout=self._config.session_seconds)
                errors = [at.error for at in found if at.error is not None]
                if not errors:
                    # A partition of which nothing was committed begins with its first record.
                    return {(at.topic, at.partition): at.offset for at in found}
                error = errors[0]
            except KafkaException as raised:
                error = raised.args[0]
            if time.monotonic() > deadline or not (error.retriable() or error.code() in _NOT_YET):
                raise KafkaException(error)
            time.sleep(ASK_SECONDS)
        return {}

    def _turn(self, share: Share, states: Mapping[int, OpenPartition]) -> None:
        """One transaction, or one wait for a record."""
        inputs, transactions, names = self._inputs, self._transactions, self._inputs.names
        positions: dict[tuple[str, int], int] = {}
        for message in self._arriving(share):
            if not positions:
                transactions.begin()
            partition = message.partition()
            for output in inputs.process(message, states[partition]):
                transactions.write(names[output.topic.name], output.key, output.value, output.headers)
            positions[message.topic(), partition] = message.offset() + 1
            inputs.processed(message)
        if positions:
            self._commit(share, states, positions)

    def _arriving(self, share: Share) -> Iterator[Message]:
        """The records of one transaction: what comes within the commit interval; more while there is a backlog."""
        config, poll = self._config, self._consumer.poll
        config.beat()
        message = poll(config.poll_seconds)
        if message is None:
            self._ran_dry = True
            return
        begun = time.monotonic()
        deadline = begun + config.commit_interval_seconds
        backlog_deadline = begun + BACKLOG_COMMITS * config.commit_interval_seconds
        while True:
            if message is None:
                self._ran_dry = True
                backlog_deadline = deadline
            elif (error := message.error()) is not None:
                raise KafkaException(error)
            else:
                yield message
            now = time.monotonic()
            if now >= backlog_deadline or self._wanted is not share:
                return
            message = poll(0) if message is not None else poll(max(0.0, min(config.poll_seconds, deadline - now)))

    def _commit(
        self, share: Share, states: Mapping[int, OpenPartition], positions: Mapping[tuple[str, int], int]
    ) -> None:
        for partition, state in states.items():
            last = len(state.changes)
            for number, (key, value) in enumerate(state.changes.items(), start=1):
                # The log keeps the order, so its last offset is the last record's.
                report = state.delivered if number == last else None
                self._transactions.write(self._changelog, key, value, _HEADERS, partition, report)
        self._transactions.commit(positions, share.member)
        self._positions.update(positions)
        for state in states.values():
            state.keep()
        self._config.at("processor.state.after")

    def _has_run_dry(self) -> bool:
        dry, self._ran_dry = self._ran_dry, False
        return dry
