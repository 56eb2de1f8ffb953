"""The engine on Faust: its group, assignor, tables and stores, with Kafka's transactions underneath.

For a team that runs Faust. The promises are those of `port.Engine`, and state and topics are the same as with `quix`,
so a system may go from one to the other: stop every instance, start them with the other engine.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import structlog
from confluent_kafka import Consumer

from processor.engine.changelog import ensure_changelog
from processor.engine.config import ProcessorConfig, changelog_name
from processor.engine.faust_fit import check
from processor.engine.handler import Handler
from processor.engine.inputs import Inputs
from processor.engine.lag import Lookout
from processor.engine.metrics import ProcessorMetrics
from processor.engine.neighbours import Neighbours
from processor.engine.plane import DataPlane, Share
from processor.engine.port import EngineError
from schemas.topics import PROCESSOR_INPUTS

check()

from faust.types.tables import TableT  # noqa: E402 - what is not there cannot be checked otherwise

from processor.engine.faust_broker import broker_urls, credentials  # noqa: E402
from processor.engine.faust_membership import GroupTables, Membership, metadata  # noqa: E402
from processor.engine.faust_stores import partition_of  # noqa: E402

MIB = 1024 * 1024
LOOK_SECONDS = 0.1
REBALANCE_SECONDS = 30.0
"""How long the group waits for an instance to come back with nothing in hand."""
LEAVE_SECONDS = 5.0
"""How long Faust may take to end once nothing is in hand; nothing depends on it."""

_log = structlog.get_logger("rung.processor")


class FaustEngine:
    """One instance of the processor on Kafka, in a group of Faust's; it runs once."""

    def __init__(self, config: ProcessorConfig, handler: Handler, metrics: ProcessorMetrics | None = None) -> None:
        """Prepare the instance: looks at the inputs and creates the changelog.

        Raises:
            EngineError: an input is missing, or the inputs differ in their number of partitions; or a setting has no
                counterpart in Faust.
            KafkaException: Kafka cannot be reached.
        """
        self._config = config
        self._partitions = ensure_changelog(config, map(config.naming, PROCESSOR_INPUTS))
        _check_metadata(config)
        self._credentials = credentials(config.kafka)
        inputs = Inputs(config, handler, metrics, self._partitions)
        self._topics = tuple(inputs.topics)
        self._changelog = changelog_name(config.group, self._topics)
        self._table: TableT[Any, Any] | None = None
        lookout = Lookout(config, inputs.topics, metrics)
        self._plane = DataPlane(config, inputs, lookout, self._changelog, self._store)
        self._app: Membership | None = None
        self._loop = asyncio.new_event_loop()
        self._group_ended = threading.Event()
        self._group_error: BaseException | None = None
        self._leaving = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """See `port.Engine`. The group and the records have a thread each, so that their end can be given a limit."""
        if stop.is_set():
            return
        logging.getLogger("faust").setLevel(logging.WARNING)
        self._plane.start()
        threading.Thread(target=self._belong, name="group", daemon=True).start()
        _log.info("processor_started", instance=self._config.instance_id, group=self._config.group, engine="faust")
        while not stop.wait(LOOK_SECONDS) and not self._plane.ended.is_set() and not self._group_ended.is_set():
            pass
        by_itself = not stop.is_set()
        self._config.ready(False)
        deadline = time.monotonic() + self._config.shutdown_seconds
        try:
            self._plane.stop(self._config.shutdown_seconds)
        finally:
            self._leaving.set()
        if not self._group_ended.wait(min(LEAVE_SECONDS, max(0.1, deadline - time.monotonic()))):
            _log.warning("group_left_behind", instance=self._config.instance_id)
        if (error := self._plane.error or self._group_error) is not None:
            raise error
        if by_itself:
            raise EngineError("the processor's threads ended by themselves")
        _log.info("processor_stopped", instance=self._config.instance_id)

    def _belong(self) -> None:
        """Take part in the group until told to leave."""
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._group())
        except BaseException as error:
            self._group_error = error
        finally:
            self._group_ended.set()
            _close(self._loop)

    async def _group(self) -> None:
        app = self._app = self._application()
        starting = asyncio.ensure_future(app.start())
        try:
            while not self._leaving.is_set():
                await asyncio.sleep(LOOK_SECONDS)
                if app.failure is not None:
                    raise app.failure
                if app.should_stop:
                    raise app.crash_reason or EngineError("Faust's application ended by itself")
                if starting.done():
                    starting.result()
        finally:
            starting.cancel()
            await app.stop()

    def _store(self, partition: int) -> Any:
        assert self._table is not None  # noqa: S101 - there is no share before there is an application
        return partition_of(self._table, partition)

    async def _take(self, share: Share) -> None:
        self._plane.open(share)
        await asyncio.wrap_future(share.restored)

    async def _release(self) -> None:
        await self._loop.run_in_executor(None, self._plane.release, self._config.transaction_seconds * 2)

    def _application(self) -> Membership:
        config = self._config
        folder = config.state_dir / config.instance_id / "faust"
        folder.mkdir(parents=True, exist_ok=True)
        app = Membership(
            config.group,
            broker=broker_urls(config.kafka),
            broker_credentials=self._credentials,
            consumer_group_instance_id=config.member_id,
            broker_session_timeout=config.session_seconds,
            broker_heartbeat_interval=config.session_seconds / 3,
            broker_request_timeout=max(30.0, config.session_seconds * 2),
            broker_rebalance_timeout=REBALANCE_SECONDS,
            broker_max_poll_interval=config.poll_limit_seconds,
            # What it is given it reads until it is held back; that is thrown away.
            consumer_max_fetch_size=1024,
            consumer_auto_offset_reset="earliest",
            datadir=folder,
            store=f"{config.store}://",
            stream_wait_empty=True,
            stream_recovery_delay=0.0,
            table_standby_replicas=0,
            topic_allow_declare=False,
            topic_disable_leader=True,
            web_enabled=False,
            TableManager=GroupTables,
        )
        app.neighbours = Neighbours(config)
        app.take, app.release = self._take, self._release
        app.topics_read = frozenset((*self._topics, self._changelog))
        for topic in self._topics:
            app.topics.add(app.topic(topic, value_serializer="raw", key_serializer="raw"))
        options = {
            # Faust makes a cache for each partition.
            "block_cache_size": max(1, config.memory_mib // self._partitions) * MIB,
            "write_buffer_size": 4 * MIB,
            "max_write_buffer_number": 2,
            "target_file_size_base": 16 * MIB,
        }
        self._table = app.Table(
            "recipients",
            partitions=self._partitions,
            key_type=bytes,
            value_type=bytes,
            options=options if config.store == "rocksdb" else None,
            changelog_topic=app.topic(self._changelog, acks=False, internal=True, allow_empty=True),
        )
        return app


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """End what Faust leaves running."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


def _check_metadata(config: ProcessorConfig) -> None:
    """librdkafka keeps the form of a member's metadata to itself."""
    client = Consumer({**config.kafka, "group.id": config.group, "group.instance.id": config.member_id})
    try:
        known = client.consumer_group_metadata()
    finally:
        client.close()
    if known != metadata(config.group, -1, "", config.member_id):
        raise EngineError("the engine faust does not fit this confluent-kafka: the form of a group's metadata changed")
