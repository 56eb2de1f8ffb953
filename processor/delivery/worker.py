"""The delivery worker: claims in, provider calls, outcomes out. All state lives in the event loop.

What a crash leaves behind, by the point at which the process dies:

| the process dies | afterwards |
|---|---|
| before the call | the claim is read again; past its deadline it is handed back |
| in the call, or before Kafka has the outcome | read again and called again with the same key |
| after that, before the offset is committed | read again; its outcome is read back from `outcomes`: no call |

The offset of a claim is committed when its outcome, and that of every claim before it, is acknowledged.
"""

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial

import structlog
from confluent_kafka import Message

from processor.delivery import outcomes
from processor.delivery.answers import Answers
from processor.delivery.caller import Answered, Caller, longest_seconds
from processor.delivery.channels.port import Failed, Unknown
from processor.delivery.config import DeliveryConfig
from processor.delivery.guard import Guard
from processor.delivery.intake import Intake, dead_letter
from processor.delivery.limits import ProviderLimits, TokenBucket
from processor.delivery.metrics import DeliveryMetrics
from processor.delivery.partition import Partition
from processor.delivery.publisher import Publisher, PublishError
from processor.delivery.routing import Router
from processor.delivery.scheduler import Claim, Scheduler
from processor.delivery.source import Assignment, Source
from processor.delivery.turns import Turns
from schemas.codec import decode
from schemas.dead_letters import DeadLetter
from schemas.envelope import headers_of, legible_headers
from schemas.errors import DecodeError
from schemas.reasons import Reason
from schemas.records import Delivery, Outcome, OutcomeKind
from schemas.topics import DELIVERIES, RECIPIENTS

STALL_SECONDS = 1.0
"""The loop reads at least ten times a second. After a gap of this length (the process or its machine was stopped, or
starved) what it knows of resolutions is old, and no call is made on it..."""
SILENCE_SECONDS = 2.0
"""...nor while Kafka has not been heard for so long, which shows within half a second more..."""
TRUST_SECONDS = 1.0
"""...until it has read for so long again: what came meanwhile lies ready at the client, or is fetched at once."""
HOUSEKEEPING_SECONDS = 1.0
LOOK_SECONDS = 0.5
BACK_MS = 100
"""A clock that goes back by more was set."""
FLUSH_SHARE = 0.2
"""The share of the shutdown's limit that is kept for writing outcomes and committing."""

_log = structlog.get_logger("rung.delivery")


class Worker:
    """Owns the claims of its partitions from reading to the committed offset."""

    def __init__(
        self, config: DeliveryConfig, caller: Caller, metrics: DeliveryMetrics, loop: asyncio.AbstractEventLoop
    ) -> None:
        now = now_ms()
        self._config = config
        self._caller = caller
        self._metrics = metrics
        self._loop = loop
        self._providers = {p.name: p for providers in config.channels.values() for p in providers}
        self._limits = {
            p.name: ProviderLimits(TokenBucket(p.rate, p.burst, now), p.concurrency) for p in self._providers.values()
        }
        self._longest_call = max((longest_seconds(p) for p in self._providers.values()), default=0.0)
        self._router = Router(config.channels, self._limits, caller.target)
        self._scheduler = Scheduler(config.concurrency, self._limits, self._router.route)
        self._guard = Guard(config.guard_keep_ms)
        self._answers = Answers(config.answers_keep_ms)
        self._intake = Intake(self._guard, self._answers, metrics, self._in_flight)
        self._partitions: dict[int, Partition] = {}
        self._generation = 0
        self._calls: dict[Claim, asyncio.Task[None]] = {}
        self._turns = Turns(loop)
        self._timer: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None
        self._assigned = False
        self._stopping = False
        self._turned_at = self._trusted_from = time.monotonic()
        self._next_commit = self._next_housekeeping = self._next_look = 0.0
        self._clock = now
        self._source = Source(config, self, loop)
        self._publisher = Publisher(config.kafka, config.naming, loop)
        metrics.observe(
            lambda: sum(len(p.tracker) for p in list(self._partitions.values())),
            self._lag_seconds,
            lambda: sum(p.ready for p in list(self._partitions.values())),
        )

    async def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set, then end in order.

        Raises:
            SourceError: the topics are not what the worker needs.
            KafkaException: the consumer cannot go on.
            PublishError: an outcome could not be written.
        """
        try:
            await self._source.start()
            while not stop.is_set():
                self._config.beat()
                messages = await self._source.poll()
                self._trusts()
                for message in messages:
                    self._read(message)
                self._turned_at = time.monotonic()
                self._pump()
                self._tick(now_ms(), time.monotonic())
                failure = self._failure or self._publisher.failure
                if failure is not None:
                    raise failure
            await self._stop()
        finally:
            self._stopping = True
            self._config.ready(False)
            try:
                await self._source.close()
            finally:
                self._publisher.close()

    # Assignments

    def assigned(self, assignments: Sequence[Assignment]) -> None:
        """Partitions were given to this worker: claims of them wait until the read-back is done."""
        for assignment in assignments:
            self._generation += 1
            number = assignment.partition
            self._partitions[number] = Partition(assignment, self._generation, dict(assignment.barriers))
        self._assigned = True
        self._share()
        _log.info("partitions_assigned", partitions=[a.partition for a in assignments])

    async def revoked(self, partitions: Sequence[int]) -> Mapping[str, Mapping[int, int]]:
        """Start nothing more of these partitions, let calls in flight finish, and return what may be committed."""
        gone = frozenset(partitions)
        self._scheduler.drop(lambda claim: claim.partition in gone, now_ms())
        calls = [task for claim, task in self._calls.items() if claim.partition in gone]
        if calls:
            # However long: whoever is next would call again. Their own time-outs end them all.
            await asyncio.wait(calls, timeout=self._longest_call)
        await self._publisher.flush(FLUSH_SHARE * self._config.shutdown_seconds)
        offsets = self._offsets(partitions)
        self._forget(partitions)
        _log.info("partitions_revoked", partitions=list(partitions))
        return offsets

    def lost(self, partitions: Sequence[int]) -> None:
        """The group has given these partitions away already. Calls in flight still publish their outcomes."""
        gone = frozenset(partitions)
        self._scheduler.drop(lambda claim: claim.partition in gone, now_ms())
        self._forget(partitions)
        _log.warning("partitions_lost", partitions=list(partitions))

    def _forget(self, partitions: Sequence[int]) -> None:
        for number in partitions:
            self._partitions.pop(number, None)
            self._guard.drop(number)
            self._answers.drop(number)
        self._share()

    def _share(self) -> None:
        share = len(self._partitions) / max(1, self._source.partitions)
        for limits in self._limits.values():
            limits.bucket.set_share(share, now_ms())

    # Reading

    def _read(self, message: Message) -> None:
        topic, partition = self._source.topic(message), self._partitions.get(message.partition() or 0)
        if partition is None:
            return
        if message.error() is not None:
            if partition.reached_end(topic.name):
                self._release(partition)
        elif topic is DELIVERIES:
            self._read_claim(partition, message)
        else:
            letter = self._intake.read(topic, message, now_ms())
            if letter is not None and letter.offset >= partition.assignment.dead_letters_from:
                self._set_aside(message, letter, partial(self._letter_written, partition, letter.offset + 1))
            if partition.passed(topic.name, (message.offset() or 0) + 1):
                self._release(partition)

    def _read_claim(self, partition: Partition, message: Message) -> None:
        offset = message.offset() or 0
        try:
            record = decode(DELIVERIES, message.key(), message.value(), headers_of(message)).record
        except DecodeError as error:
            if partition.tracker.add(offset, now_ms()):
                letter = dead_letter(DELIVERIES, message, error, now_ms())
                self._set_aside(message, letter, partial(self._settled, partition, offset))
            return
        if not isinstance(record, Delivery):
            raise TypeError("the catalogue says that deliveries carry claims alone")
        if not partition.tracker.add(offset, record.claimed_at):
            return
        if len(partition.tracker) >= self._config.backlog and not partition.paused:
            partition.paused = True
            self._source.pause(partition.assignment.partition)
        claim = Claim(record, partition.assignment.partition, offset, partition.generation)
        if not partition.ready:
            partition.early.append(claim)
        else:
            self._take(claim)

    def _release(self, partition: Partition) -> None:
        """Everything that may speak against the claims has been read."""
        early, partition.early = partition.early, []
        for claim in early:
            self._take(claim)

    def _take(self, claim: Claim) -> None:
        delivery, now = claim.delivery, now_ms()
        match self._router.obstacle(delivery):
            case None:
                self._scheduler.add(claim, now)
            case "unknown_channel":
                _log.error("unknown_channel", channel=delivery.channel, key=delivery.key)
                self._publish(claim, outcomes.rejected(delivery, "unknown_channel", now))
            case reason:
                _log.error(reason, provider=delivery.provider, key=delivery.key)
                self._publish(claim, outcomes.held(delivery, reason, now))

    def _set_aside(self, message: Message, letter: DeadLetter, acknowledged: partial[None]) -> None:
        _log.warning(
            "dead_letter", reason=letter.reason, topic=letter.topic, partition=letter.partition, offset=letter.offset
        )
        self._metrics.dead_letters.labels("delivery", letter.reason).inc()
        headers = legible_headers(message, letter.detail)
        self._publisher.dead_letter(letter.record(message.key(), message.value(), headers), acknowledged)

    def _letter_written(self, partition: Partition, offset: int) -> None:
        partition.letters_written = max(offset, partition.letters_written or 0)

    # Calling

    def _trusts(self) -> bool:
        """Whether what is known of resolutions and recipients is fresh enough to call on."""
        now = time.monotonic()
        stalled = now - self._turned_at > STALL_SECONDS
        if stalled or now - self._source.heard_at > SILENCE_SECONDS:
            if now >= self._trusted_from:
                _log.warning("holding_calls", reason="stalled" if stalled else "kafka_silent")
            self._turned_at, self._trusted_from = now, now + TRUST_SECONDS
        return now >= self._trusted_from

    def _pump(self) -> None:
        """Settle what is past its deadline, start what may start, and set the timer for what comes next."""
        if self._stopping or not self._trusts():
            # The loop comes by again, at least ten times a second.
            return
        now = now_ms()
        try:
            for claim in self._scheduler.expired(now):
                self._admit(claim)
            for claim in self._scheduler.start(now, self._admit):
                self._config.at("delivery.claim.after")
                self._calls[claim] = self._loop.create_task(self._call(claim))
        except PublishError as error:
            self._failure = error
            return
        self._wake(self._scheduler.wake_at(now), now)

    def _wake(self, wake_at: int | None, now: int) -> None:
        """Come by at that moment at the latest. A timer that is due before is left alone: it sets the next one."""
        if wake_at is None:
            return
        at = self._loop.time() + max(1, wake_at - now) / 1000
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._woken)

    def _woken(self) -> None:
        self._timer = None
        self._pump()

    def _admit(self, claim: Claim) -> bool:
        """Whether this claim may be called. If not, its outcome has been written."""
        delivery, now = claim.delivery, now_ms()
        if self._answers.answered(claim.partition, delivery):
            self._metrics.repeated.inc()
            self._settle(claim)
            return False
        objection = self._objection(claim, delivery, now)
        if objection is None:
            return True
        self._publish(claim, objection)
        return False

    def _objection(self, claim: Claim, delivery: Delivery, now: int) -> Outcome | None:
        sent = self._answers.sent(claim.partition, delivery)
        if sent is not None:
            self._metrics.repeated.inc()
            return outcomes.again(delivery, sent)
        if now > delivery.claim_deadline:
            return self._unclaimed(delivery, "deadline", now)
        if not self._trusts():
            # It had been taken out to be called when what is known became old: the processor decides afresh.
            return self._unclaimed(delivery, "stalled", now)
        reason = self._guard.verdict(claim.partition, delivery)
        if reason is None and delivery.expires_at <= now:
            reason = Reason.EXPIRED
        if reason is None:
            return None
        self._metrics.suppressed.labels(reason).inc()
        return outcomes.plain(delivery, OutcomeKind.SUPPRESSED, reason, now)

    def _unclaimed(self, delivery: Delivery, why: str, now: int) -> Outcome:
        self._metrics.unclaimed.labels(why).inc()
        return outcomes.plain(delivery, OutcomeKind.UNCLAIMED, why, now)

    async def _call(self, claim: Claim) -> None:
        provider = self._providers[claim.provider]
        answer: Answered | None = None
        try:
            # The last act before the call: other events may have come since the claim was taken out.
            if self._admit(claim):
                self._metrics.wait.observe(max(0, now_ms() - claim.delivery.claimed_at) / 1000)
                self._config.at("delivery.call.before")
                answer = await self._caller.call(claim.delivery, provider)
                self._config.at("delivery.call.after")
                await self._turns.take()
                self._answered(claim, answer)
        except asyncio.CancelledError:
            # Only a stop whose limit is over cancels a call.
            self._answered(claim, answer or Answered(Unknown("interrupted")))
        except BaseException as error:
            self._failure = error
        finally:
            self._calls.pop(claim, None)
            self._scheduler.finish(claim, now_ms())
            self._pump()

    def _answered(self, claim: Claim, answer: Answered) -> None:
        provider, now = self._providers[claim.provider], now_ms()
        if isinstance(answer.result, Failed) and answer.result.pause_ms:
            self._limits[provider.name].close(claim.target, now + answer.result.pause_ms)
            _log.warning("provider_paused", provider=provider.name, pause_ms=answer.result.pause_ms)
        outcome = outcomes.answered(claim.delivery, provider, answer, now)
        _log.info(
            "attempt",
            key=outcome.key,
            attempt=outcome.attempt,
            channel=outcome.channel,
            provider=provider.name,
            outcome=outcome.outcome,
            reason=outcome.reason,
            latency_ms=outcome.latency_ms,
        )
        self._publish(claim, outcome)

    def _in_flight(self, recipient: str, dedup_key: str) -> bool:
        return any(
            claim.delivery.recipient == recipient and claim.delivery.dedup_key == dedup_key for claim in self._calls
        )

    # Settling

    def _publish(self, claim: Claim, outcome: Outcome) -> None:
        if claim.partition in self._partitions:
            self._answers.record(claim.partition, outcome, now_ms())
        self._config.at("delivery.outcome.before")
        self._publisher.outcome(outcome, partial(self._written, claim))

    def _written(self, claim: Claim) -> None:
        self._config.at("delivery.outcome.after")
        self._settle(claim)

    def _settle(self, claim: Claim) -> None:
        partition = self._partitions.get(claim.partition)
        if partition is not None and partition.generation == claim.generation:
            self._settled(partition, claim.offset)

    def _settled(self, partition: Partition, offset: int) -> None:
        partition.tracker.settle(offset)
        number = partition.assignment.partition
        current = self._partitions.get(number) is partition and not self._stopping
        if partition.paused and current and len(partition.tracker) <= self._config.backlog // 2:
            partition.paused = False
            self._source.resume(number)

    def _offsets(self, partitions: Sequence[int]) -> dict[str, dict[int, int]]:
        """What may be committed and is not yet."""
        found: dict[str, dict[int, int]] = {DELIVERIES.name: {}, RECIPIENTS.name: {}}
        for number in partitions:
            partition = self._partitions.get(number)
            if partition is None:
                continue
            offset = partition.tracker.committable
            if offset is not None and offset != partition.committed:
                found[DELIVERIES.name][number] = partition.committed = offset
            if partition.letters_written is not None:
                found[RECIPIENTS.name][number] = partition.letters_written
                partition.letters_written = None
        return found

    def _tick(self, now: int, at: float) -> None:
        """What is done now and then: `at` counts on where the clock, which says `now`, is set."""
        if now < self._clock - BACK_MS:
            _log.warning("clock_set_back", by_ms=self._clock - now)
            for limits in self._limits.values():
                limits.clock_set_back(self._clock - now)
        self._clock = now
        if at >= self._next_commit:
            self._next_commit = at + self._config.commit_interval_ms / 1000
            self._source.commit(self._offsets(list(self._partitions)))
        if at >= self._next_housekeeping:
            self._next_housekeeping = at + HOUSEKEEPING_SECONDS
            self._guard.prune(now)
            self._answers.prune(now)
        if at >= self._next_look:
            self._next_look = at + LOOK_SECONDS
            self._look(now)

    def _look(self, now: int) -> None:
        for name, limits in self._limits.items():
            self._metrics.paused.labels(name).set(limits.closed_until > now)
        self._config.ready(self._assigned and all(p.ready for p in self._partitions.values()))
        self._config.progress(
            {
                (DELIVERIES.name, number): (partition.tracker.committable or 0, self._source.end(number))
                for number, partition in self._partitions.items()
            }
        )

    def _lag_seconds(self) -> float:
        oldest = [p.tracker.oldest for p in list(self._partitions.values())]
        moments = [at for at in oldest if at is not None]
        return max(0.0, (now_ms() - min(moments)) / 1000) if moments else 0.0

    async def _stop(self) -> None:
        """Hand back what has not started, let the rest finish within the limit, commit."""
        until = time.monotonic() + self._config.shutdown_seconds
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        handed = self._scheduler.drop(lambda _: True, now_ms())
        handed += [claim for partition in self._partitions.values() for claim in partition.early]
        for claim in handed:
            self._hand_back(claim)
        calls = list(self._calls.values())
        if calls:
            _, late = await asyncio.wait(calls, timeout=(1 - FLUSH_SHARE) * self._config.shutdown_seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=until - time.monotonic())
        if not await self._publisher.flush(until - time.monotonic()):
            _log.error("outcomes_not_written")
        await self._source.commit_now(self._offsets(list(self._partitions)))
        _log.info("stopped", handed_back=len(handed), finished=len(calls))

    def _hand_back(self, claim: Claim) -> None:
        delivery = claim.delivery
        if self._answers.answered(claim.partition, delivery):
            self._settle(claim)
            return
        self._publish(claim, self._unclaimed(delivery, "stopping", now_ms()))


def now_ms() -> int:
    """The wall clock, milliseconds since the epoch."""
    return round(time.time() * 1000)
