"""The quixstreams application under the engine: how it is set up, and the few places where it differs on purpose.

- Inputs are *not* aligned by time. The library does that for concatenated streams by holding a partition back until
  every other input is known to have nothing older; an open transaction of a delayer that died would then hold back
  the resolutions too. The domain is indifferent to the order between topics, so nothing is gained by it.
- The prefetch is small. All inputs share one queue in the client, and a long backlog of notifications in it would make
  a resolution wait for all of it.
- A record goes from the client to the handler at once, and states are written and read back by the batch
  (`quix_clients`, `quix_state`). The library's groups, rebalances, checkpoints and transactions are as they are.
- A transaction holds more while there is a backlog, and its end has a limit.
- Signals stay with the process: the application runs in a thread, and its end is asked for by `stop`.
"""

import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from processor.engine.config import ProcessorConfig, changelog_name
from processor.engine.handler import MAX_STATE_BYTES
from processor.engine.port import EngineError
from schemas.topics import DAY_MS, PARTITIONER

# Its schema registry client, which is not used here, imports a library that tells of a release to come with a warning
# that no filter stops; recording it keeps it off stderr.
with warnings.catch_warnings(record=True):
    from quixstreams import Application
    from quixstreams import message_context as message_context
    from quixstreams.dataframe import StreamingDataFrame
    from quixstreams.internal_consumer import InternalConsumer
    from quixstreams.internal_producer import InternalProducer
    from quixstreams.kafka import ConnectionConfig
    from quixstreams.state.rocksdb import RocksDBOptions, RocksDBStore

    from processor.engine.quix_clients import WatchedConsumer, WatchedProducer
    from processor.engine.quix_state import BatchRecovery, RecipientsStore

MAX_RECORD_BYTES = 2 * MAX_STATE_BYTES
"""The largest record written: a state, or a dead letter (the largest input and its marks)."""
CHANGELOG_CONFIG = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(MAX_RECORD_BYTES),
    # Compaction leaves the newest segment alone. A restore reads what it left, so segments are small; and an erased
    # person's old states are gone after a day and the time that the cleaner takes.
    "segment.bytes": str(64 * 1024 * 1024),
    "max.compaction.lag.ms": str(DAY_MS),
}
MIB = 1024 * 1024
BACKLOG_COMMITS = 4
"""How many commit intervals one transaction may hold while there is always more to do than can be done."""


class ProcessorApplication(Application):
    """The library's application with the differences that the module's text names."""

    _handle: Callable[[Message], None] | None = None
    _caught_up = True
    """Whether all that was there was worked off at some moment since the last commit."""
    has_share = False
    """Whether the group has told this instance which partitions are its own. Its state may still be read back."""

    def _get_internal_producer(self, *args: Any, **kwargs: Any) -> InternalProducer:
        """As the library makes it, from settings that it keeps to itself; only the class is another."""
        producer = super()._get_internal_producer(*args, **kwargs)
        producer.__class__ = WatchedProducer
        return producer

    def _get_internal_consumer(self, *args: Any, **kwargs: Any) -> InternalConsumer:
        """Likewise."""
        consumer = super()._get_internal_consumer(*args, **kwargs)
        consumer.__class__ = WatchedConsumer
        return consumer

    @property
    def producer(self) -> WatchedProducer:
        """The one producer, of the outputs and the changelog."""
        assert isinstance(self._producer, WatchedProducer)  # noqa: S101 - made so above
        return self._producer

    def watch(self, at: Callable[[str], None], beat: Callable[[], None], commit_seconds: float) -> None:
        """Call `at` with the names of `points` that lie in a transaction's end, and `beat` at each wait; a commit is
        tried for `commit_seconds` at the most."""
        self.producer.at = at
        self.producer.commit_seconds = commit_seconds
        if isinstance(self._consumer, WatchedConsumer):
            self._consumer.beat = beat

    def ran_dry(self) -> bool:
        """Whether there was a moment without a record to work on since the last time that this was asked."""
        consumer = self._consumer
        if not isinstance(consumer, WatchedConsumer):
            return True
        dry, consumer.ran_dry = consumer.ran_dry, False
        return dry

    def _on_assign(self, *args: Any, **kwargs: Any) -> None:
        super()._on_assign(*args, **kwargs)
        self.has_share = True

    def _on_revoke(self, *args: Any, **kwargs: Any) -> None:
        self.has_share = False
        super()._on_revoke(*args, **kwargs)

    def _on_lost(self, *args: Any, **kwargs: Any) -> None:
        self.has_share = False
        super()._on_lost(*args, **kwargs)

    def _setup_signal_handlers(self) -> None:
        """Leave signals alone: they belong to the process, and only its main thread could set them."""

    def joined(self, topics: Iterable[str]) -> StreamingDataFrame:
        """One stream of several co-partitioned inputs with one state store, read as the records come."""
        frames = [
            self.dataframe(self.topic(name, key_deserializer="bytes", value_deserializer="bytes")) for name in topics
        ]
        joined = frames[0]
        for frame in frames[1:]:
            joined = joined.concat(frame)
        self._dataframe_registry._requires_time_alignment = False
        joined.register_store()
        return joined

    def for_each(self, topics: Iterable[str], handle: Callable[[Message], None]) -> StreamingDataFrame:
        """Like `joined`, with `handle` called for each record in place of what is made of the stream, and the store of
        `quix_state`. The library's own way of a record through rows, contexts and callbacks takes longer than to decide
        it; its groups, checkpoints, transactions and rebalances are as they are."""
        frame = self.joined(topics)
        store = self._state_manager.get_store(frame.stream_id)
        if isinstance(store, RocksDBStore):
            store.__class__ = RecipientsStore
        if self._state_manager._recovery_manager is not None:
            self._state_manager._recovery_manager.__class__ = BatchRecovery
        self._handle = handle
        return frame

    def _process_message(self, dataframe_composed: Any) -> None:
        """Work off what is there, until it is time to commit."""
        handle, consumer, producer, context = self._handle, self._consumer, self._producer, self._processing_context
        if handle is None or not isinstance(consumer, WatchedConsumer):
            super()._process_message(dataframe_composed)  # type: ignore[no-untyped-call]
            return
        producer.poll(0)
        found = False
        for message in consumer.arriving(self._config.consumer_poll_timeout):
            found = True
            handle(message)
            # Another one after a rebalance, which happens between two records.
            checkpoint = context.checkpoint
            checkpoint.store_offset(message.topic(), message.partition(), message.offset())
            if checkpoint.expired():
                # A longer transaction under a backlog: its end costs the same, and nobody waits for the first record.
                times = 1 if self._caught_up else BACKLOG_COMMITS
                context.commit_interval = self._config.commit_interval * times
                self._caught_up = False
                break
        else:
            self._caught_up = True
            context.commit_interval = self._config.commit_interval
        self._run_tracker.set_message_consumed(found)
        if found:
            producer._broker_available()  # type: ignore[no-untyped-call]
            consumer._broker_available()  # type: ignore[no-untyped-call]

    def every_round(self, task: Callable[[], None]) -> None:
        """Call `task` after every record, and while there is none after every wait for one."""
        self._dataframe_registry.register_periodic_task(task)


def application(config: ProcessorConfig) -> ProcessorApplication:
    """Set up the application; no connection is made yet."""
    connection = ConnectionConfig.from_librdkafka_dict(dict(config.kafka), ignore_extras=True)
    known = connection.as_librdkafka_dict().keys()
    extra = {name: value for name, value in config.kafka.items() if name not in known}
    made = ProcessorApplication(
        broker_address=connection,
        consumer_group=config.group,
        auto_offset_reset="earliest",
        commit_interval=config.commit_interval_seconds,
        consumer_poll_timeout=config.poll_seconds,
        processing_guarantee="exactly-once",
        consumer_extra_config=extra | _consumer_settings(config),
        producer_extra_config=extra | _producer_settings(config),
        state_dir=config.state_dir / config.instance_id,
        rocksdb_options=_rocksdb_options(config),
        auto_create_topics=False,
        loglevel=None,
    )
    made.watch(config.at, config.beat, config.transaction_seconds)
    return made


def ensure_changelog(config: ProcessorConfig, inputs: Iterable[str], timeout: float = 30.0) -> int:
    """Create the topic that holds the state, if it is missing, and return how many partitions the inputs have.

    Raises:
        EngineError: an input is missing, or the inputs differ in their number of partitions.
        KafkaException: the cluster cannot be reached, or refuses.
    """
    names = sorted(inputs)
    changelog = changelog_name(config.group, names)
    admin = AdminClient(dict(config.kafka))
    existing = admin.list_topics(timeout=timeout).topics
    if missing := [name for name in names if name not in existing]:
        raise EngineError(f"topics are missing: {', '.join(missing)}; create the catalogue's topics first")
    counts = {name: len(existing[name].partitions) for name in names}
    if len(set(counts.values())) != 1:
        raise EngineError(f"the inputs must have the same number of partitions, and have {counts}")
    if changelog in existing:
        return counts[names[0]]
    replicas = max(len(existing[name].partitions[0].replicas) for name in names)
    new = NewTopic(changelog, counts[names[0]], replication_factor=replicas, config=CHANGELOG_CONFIG)
    future = admin.create_topics([new], operation_timeout=timeout)[changelog]
    try:
        future.result(timeout)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    deadline = time.monotonic() + timeout
    while changelog not in admin.list_topics(timeout=timeout).topics:
        if time.monotonic() > deadline:
            raise EngineError(f"topic {changelog} was created and is not to be seen after {timeout} s")
        time.sleep(0.05)
    return counts[names[0]]


def _consumer_settings(config: ProcessorConfig) -> dict[str, Any]:
    session = round(config.session_seconds * 1000)
    return {
        "group.instance.id": f"{config.group}.{config.instance_id}",
        "isolation.level": "read_committed",
        "session.timeout.ms": session,
        "heartbeat.interval.ms": session // 3,
        "max.poll.interval.ms": round(config.poll_limit_seconds * 1000),
        # All partitions share one queue in the client, first come, first served: what lies in it before a resolution
        # is decided before it. So no partition may put much into it at once, however much it has.
        "queued.min.messages": 100,
        "fetch.message.max.bytes": 64 * 1024,
        "queued.max.messages.kbytes": 8 * 1024,
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 100,
    }


def _producer_settings(config: ProcessorConfig) -> dict[str, Any]:
    return {
        "partitioner": PARTITIONER,
        "enable.idempotence": True,
        "acks": "all",
        "transactional.id": config.transactional_id,
        "transaction.timeout.ms": round(config.transaction_seconds * 1000),
        "message.max.bytes": MAX_RECORD_BYTES,
        "compression.type": "lz4",
        # A transaction that follows another closely is answered "concurrent transactions" for some milliseconds; with
        # the default of 100 ms it would stand still for as long.
        "retry.backoff.ms": 5,
    }


def _rocksdb_options(config: ProcessorConfig) -> RocksDBOptions:
    return RocksDBOptions(
        write_buffer_size=4 * MIB,
        max_write_buffer_number=2,
        target_file_size_base=16 * MIB,
        block_cache_size=config.memory_mib * MIB,
        max_total_wal_size=16 * MIB,
        # A lock that is held belongs to a process of this instance that is on its way out.
        open_max_retries=10,
        open_retry_backoff=1.0,
    )
