"""One redrive from its first look to its summary."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from relay.redrive.config import RedriveConfig
from relay.redrive.judgement import Back, Refusal, Refused, judge
from relay.redrive.letters import Letter, mark
from relay.redrive.scan import TIMEOUT_SECONDS, Scan
from schemas.codec import encode_key
from schemas.topics import DEAD_LETTERS, PARTITIONER

BATCH = 100
_log = structlog.get_logger("rung.redrive")
Progress = Callable[[int, int], None]
"""Told how many records were read, and of about how many."""


class RedriveError(RuntimeError):
    """The run cannot go on; what it had written and committed stands, and the next run goes on from there."""


@dataclass
class Summary:
    """What became of the letters, by their reason."""

    dry_run: bool
    back: Counter[str] = field(default_factory=Counter)
    """Went back, or would."""
    refused: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Stay: the letter's reason, why, and a detail."""
    done_before: int = 0
    left_out: int = 0
    """By the filters."""
    stopped: bool = False


def run(config: RedriveConfig, stop: threading.Event, progress: Progress = lambda _read, _size: None) -> Summary:
    """Put back what may go back, or count it.

    Raises:
        RedriveError: another redrive has begun, or Kafka refused a record.
        KafkaException: Kafka cannot be reached.
    """
    # Taken before the first look: what an earlier run had committed is seen, and it can commit nothing more.
    writer = None if config.dry_run else _Writer(config, stop)
    scan = Scan(config)
    summary = Summary(config.dry_run)
    try:
        done, size = scan.done(), scan.size
        for number, letter in enumerate(scan.letters(), 1):
            if stop.is_set():
                summary.stopped = True
                break
            _take(config, summary, done, letter, writer)
            progress(number, size)
        if writer is not None:
            writer.flush()
    finally:
        scan.close()
    return summary


def _take(
    config: RedriveConfig, summary: Summary, done: set[tuple[int, int]], letter: Letter | None, writer: "_Writer | None"
) -> None:
    if letter is None:
        summary.refused["", Refusal.UNMARKED, ""] += 1
    elif (letter.partition, letter.offset) in done:
        summary.done_before += 1
    elif not _wanted(config, letter):
        summary.left_out += 1
    else:
        found = judge(letter, round(time.time() * 1000), config.limit, config.understood)
        if isinstance(found, Refused):
            summary.refused[letter.reason, found.why, found.detail] += 1
            return
        if writer is not None:
            writer.write(letter, found)
        summary.back[letter.reason] += 1


def _wanted(config: RedriveConfig, letter: Letter) -> bool:
    return (
        (not config.reasons or letter.reason in config.reasons)
        and (not config.topics or (letter.topic is not None and letter.topic.name in config.topics))
        and (config.recipient is None or letter.key == encode_key(config.recipient))
        and (config.since is None or letter.at >= config.since)
    )


class _Writer:
    """Writes records and their marks, a batch in each transaction, no faster than the rate."""

    def __init__(self, config: RedriveConfig, stop: threading.Event) -> None:
        self._naming = config.naming
        self._rate = config.rate
        self._stop = stop
        self._most = max(1, min(BATCH, int(config.rate)))
        self._batch: list[tuple[Letter, Back]] = []
        self._next = time.monotonic()
        self._refused: list[KafkaError] = []
        self._producer = Producer(
            {
                **config.kafka,
                "transactional.id": config.naming.prefix + "rung-redrive",
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": PARTITIONER,
                "message.max.bytes": DEAD_LETTERS.max_message_bytes,
            }
        )
        self._producer.init_transactions(TIMEOUT_SECONDS)

    def write(self, letter: Letter, back: Back) -> None:
        self._batch.append((letter, back))
        if len(self._batch) >= self._most:
            self.flush()

    def flush(self) -> None:
        """Write what is gathered, once its turn has come.

        Raises:
            RedriveError: see `run`.
        """
        if not self._batch:
            return
        self._stop.wait(max(0.0, self._next - time.monotonic()))
        try:
            self._transaction()
        except KafkaException as error:
            code = error.args[0].code()
            if code in {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}:
                raise RedriveError(
                    "another redrive has begun; this one has ended, and nothing is written twice"
                ) from None
            raise
        self._next = max(self._next, time.monotonic() - 1) + len(self._batch) / self._rate
        self._batch = []

    def _transaction(self) -> None:
        self._producer.begin_transaction()
        for letter, back in self._batch:
            self._produce(self._naming(back.topic), back.key, back.value, back.headers)
            marks = self._naming(DEAD_LETTERS)
            self._produce(marks, letter.key, None, mark(letter), partition=letter.partition)
        self._producer.flush(TIMEOUT_SECONDS)
        if self._refused:
            self._producer.abort_transaction(TIMEOUT_SECONDS)
            raise RedriveError(f"Kafka refused a record ({self._refused[0].name()}); its batch was not written")
        self._producer.commit_transaction(TIMEOUT_SECONDS)
        for letter, back in self._batch:
            _log.info(
                "record_put_back",
                topic=back.topic.name,
                reason=letter.reason,
                partition=letter.partition,
                offset=letter.offset,
                redrives=letter.redrives + 1,
            )

    def _produce(self, topic: str, key: bytes | None, value: bytes | None, headers: object, **where: int) -> None:
        self._producer.produce(topic, value=value, key=key, headers=headers, on_delivery=self._confirm, **where)
        self._producer.poll(0)

    def _confirm(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused.append(error)
