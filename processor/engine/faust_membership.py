"""Faust's application with its data plane taken out: what is left is its group, its assignor, its tables and stores.

Faust decides which instance holds which partitions, keeps a database for each, and tells when partitions come and go.
`plane` does all that touches a record. Each class here overrides the seam at which Faust would have done it, for a
fault that was found there (faust-streaming 0.15.3; the places are in its source):

| Faust's own                                | the fault                                                            |
|--------------------------------------------|----------------------------------------------------------------------|
| `Consumer.getmany`, `_drain_messages`      | a fetch from before a seek goes on after it; records are dropped     |
| aiokafka's `seek_to_committed`             | a partition without a commit is not moved back                       |
| `Consumer.commit`, acks by event           | an error acks its event; a failed commit counts as one               |
| `Recovery._restart_recovery`               | sources resume before the seek; queues are cleared after it          |
| `Recovery._slurp_changelogs`               | errors are passed over, and leave holes in the state                 |
| `App._on_partitions_revoked`               | waits for what is in hand without a limit, or not at all             |
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import faust
from aiokafka.errors import IllegalStateError, InconsistentGroupProtocolError, KafkaError
from faust.app.base import BootStrategy
from faust.tables.manager import TableManager
from faust.tables.recovery import RebalanceAgain, Recovery, ServiceStopped
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode import Service
from mode.threads import WorkerThread

from processor.engine.neighbours import Neighbours
from processor.engine.plane import Share
from processor.engine.port import EngineError

ALIVE_SECONDS = 1.0
"""How often the membership is told that somebody is at work; it gives up after `max.poll.interval`."""

Take = Callable[[Share], Awaitable[None]]
Release = Callable[[], Awaitable[None]]


def metadata(group: str, generation: int, member: str, instance: str | None) -> bytes:
    """A member's metadata as librdkafka takes it for `send_offsets_to_transaction`. The form is its own, and the
    start checks that it has not changed."""
    static = b"\1" if instance is None else b"\0" + instance.encode() + b"\0"
    return b"CGMDv2:" + struct.pack("<i", generation) + group.encode() + b"\0" + member.encode() + b"\0" + static


class GroupOnly(BootStrategy):
    """Start no producer: nothing is written through Faust."""

    enable_kafka_producer = False


class Membership(faust.App):
    """The application: gives shares out, and asks for them back."""

    BootStrategy = GroupOnly
    take: Take
    """Begin with a share; returns when its state is read back."""
    release: Release
    """Finish what is in hand and let the share go."""
    topics_read: frozenset[str] = frozenset()
    """What is given out together: the inputs and the changelog."""
    neighbours: Neighbours
    failure: BaseException | None = None

    def _new_transport(self) -> Any:
        return GroupTransport(self.conf.broker_consumer, self)

    def fail(self, error: BaseException) -> None:
        """The engine cannot go on; whoever watches it ends it."""
        if self.failure is None:
            self.failure = error


class GroupConsumer(driver.Consumer):
    """Takes part in the group, and reads nothing."""

    app: Membership
    _thread: GroupThread

    def _new_consumer_thread(self) -> GroupThread:
        return GroupThread(self, loop=self.loop, beacon=self.beacon)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """The group asks for partitions back: before anything else, what is in hand ends."""
        await self._released()
        await super().on_partitions_revoked(revoked)

    async def wait_empty(self) -> None:
        """Likewise, where Faust waits for its streams."""
        await self._released()

    async def _released(self) -> None:
        try:
            await self.app.release()
        except Exception as error:
            # aiokafka would log it and go on.
            self.app.fail(error)
            raise

    def share(self, generation: int) -> Share | None:
        """What this generation gave; None if there is another by now."""
        coordinator = self._thread._ensure_consumer()._coordinator
        if coordinator.generation != generation or generation <= 0:
            return None
        held: dict[str, set[int]] = {topic: set() for topic in self.app.topics_read}
        for tp in self.assignment():
            if tp.topic in held:
                held[tp.topic].add(tp.partition)
        partitions = next(iter(held.values()))
        if any(others != partitions for others in held.values()):
            raise EngineError(f"the inputs and the changelog were not given out together: {held}")
        member = metadata(self.app.conf.id, generation, coordinator.member_id, coordinator._group_instance_id)
        return Share(frozenset(partitions), member)

    @Service.task
    async def _keep_alive(self) -> None:
        while not self.should_stop:
            await self.sleep(ALIVE_SECONDS)
            try:
                await self._thread.alive()
            except InconsistentGroupProtocolError:
                # The client goes on trying by itself.
                try:
                    self.app.neighbours.met()
                except EngineError as error:
                    self.app.fail(error)
                    return
            except (TimeoutError, KafkaError) as error:
                self.app.fail(error)
                return

    async def perform_seek(self) -> None:
        """Positions are the plane's."""

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: ARG002
        """They are committed by the plane."""
        return False

    async def _drain_messages(self, fetcher: Any) -> None:
        """There is nothing to drain. Faust starts this again as it likes, and waits for its end."""

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Faust's watch over its own data plane."""


class _DaemonThread(WorkerThread):
    """A process that gives up does not wait for it."""

    def __init__(self, service: Any, **kwargs: Any) -> None:
        super().__init__(service, **kwargs)
        self.daemon = True


class GroupThread(driver.AIOKafkaConsumerThread):
    """The thread of the group's client."""

    Worker = _DaemonThread

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Hold the client back from reading what it was given."""
        client = self._ensure_consumer()
        client.pause(*client.assignment())
        await super().on_partitions_assigned(assigned, generation_id)

    async def alive(self) -> None:
        """Count as somebody who reads. KafkaError: the group has shut this member out for good."""
        client = self._ensure_consumer()
        future = asyncio.run_coroutine_threadsafe(_read_nothing(client), self.thread_loop)
        await asyncio.wrap_future(future)


async def _read_nothing(client: Any) -> None:
    client.pause(*client.assignment())
    await client.getmany(timeout_ms=0)


class GroupTransport(driver.Transport):
    """Makes the consumer above."""

    Consumer = GroupConsumer


class GroupRecovery(Recovery):
    """Waits for the plane to read the state back."""

    app: Membership

    @Service.task
    async def _restart_recovery(self) -> None:
        while not self.should_stop:
            if await self.wait_for_stopped(self.signal_recovery_start):  # type: ignore[arg-type]
                return
            self.signal_recovery_start.clear()
            generation = self._generation_id
            try:
                await self._wait(self._restored(generation))
                await self._wait(self.on_recovery_completed(generation))
            except (RebalanceAgain, IllegalStateError):
                continue
            except ServiceStopped:
                return
            except Exception as error:
                self.app.fail(error)
                return

    async def _restored(self, generation: int) -> None:
        consumer = self.app.consumer
        assert isinstance(consumer, GroupConsumer)  # noqa: S101 - the transport makes no other
        share = consumer.share(generation)
        if share is not None:
            self._set_recovery_started()
            await self.app.take(share)

    @Service.task
    async def _slurp_changelogs(self) -> None:
        await self.wait_until_stopped()

    @Service.task
    async def _publish_stats(self) -> None:
        await self.wait_until_stopped()


class GroupTables(TableManager):
    """Makes the recovery above."""

    @property
    def recovery(self) -> Recovery:
        """Of the tables."""
        if self._recovery is None:
            self._recovery = GroupRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
