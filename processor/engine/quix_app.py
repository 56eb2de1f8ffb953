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

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Message

from processor.engine.clients import membership, reading, writing
from processor.engine.config import ProcessorConfig
from processor.engine.neighbours import Neighbours

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

    def watch(self, config: ProcessorConfig) -> None:
        """Call `config.at` with the names of `points` that lie in a transaction's end, and `config.beat` at each wait;
        a commit is tried for as long as a transaction may be open."""
        self.producer.at = config.at
        self.producer.commit_seconds = config.transaction_seconds
        if isinstance(self._consumer, WatchedConsumer):
            self._consumer.beat = config.beat
            self._consumer.neighbours = Neighbours(config)

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
        consumer_extra_config=extra | reading() | membership(config),
        producer_extra_config=extra | writing(config),
        state_dir=config.state_dir / config.instance_id,
        rocksdb_options=_rocksdb_options(config),
        auto_create_topics=False,
        loglevel=None,
    )
    made.watch(config)
    return made


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
