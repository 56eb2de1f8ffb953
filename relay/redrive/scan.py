"""Reading `dead-letters` up to where it ended at the start: first the marks, then the letters."""

from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from relay.redrive.config import RedriveConfig
from relay.redrive.letters import Letter, done_offset, read
from schemas.envelope import legible_headers
from schemas.topics import DEAD_LETTERS

TIMEOUT_SECONDS = 30.0
RETRY_SECONDS = 0.2
_LEADER_MOVES = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
Place = tuple[int, int]


def _leader_moves(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _LEADER_MOVES


# A leader that has just changed, or is just being found: the client does not ask again by itself.
_asking = Retrying(
    retry=retry_if_exception(_leader_moves),
    stop=stop_after_delay(TIMEOUT_SECONDS),
    wait=wait_fixed(RETRY_SECONDS),
    reraise=True,
)


class Scan:
    """One look at the topic. What is written after it began is left to the next."""

    def __init__(self, config: RedriveConfig) -> None:
        """Look up where each partition begins and ends.

        Raises:
            KafkaException: Kafka cannot be read.
        """
        self._topic = config.naming(DEAD_LETTERS)
        self._consumer = Consumer(
            {
                **config.kafka,
                "group.id": config.naming.prefix + "rung-redrive",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        known = self._consumer.list_topics(self._topic, timeout=TIMEOUT_SECONDS).topics[self._topic]
        if known.error is not None:
            raise KafkaException(known.error)
        self._ends = {p: self._bounds(p)[1] for p in known.partitions}
        self._starts = {p: self._start(p, config.since) for p in known.partitions}

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    @property
    def size(self) -> int:
        """About how many records there are to read."""
        return sum(max(0, self._ends[p] - max(0, start)) for p, start in self._starts.items())

    def done(self) -> set[Place]:
        """What went back before: partitions and offsets of letters."""
        found = set()
        for message in self._messages():
            offset = done_offset(legible_headers(message))
            if offset is not None:
                found.add((message.partition() or 0, offset))
        return found

    def letters(self) -> Iterator[Letter | None]:
        """Every record that is no mark, in the order of its partition; None for one that is no letter."""
        for message in self._messages():
            headers = legible_headers(message)
            if done_offset(headers) is None:
                place = (message.partition() or 0, message.offset() or 0)
                yield read(*place, message.key(), message.value(), headers)

    def _bounds(self, partition: int) -> tuple[int, int]:
        at = TopicPartition(self._topic, partition)
        low, high = _asking(self._consumer.get_watermark_offsets, at, timeout=TIMEOUT_SECONDS)
        return low, high

    def _start(self, partition: int, since: int | None) -> int:
        if since is None:
            return int(OFFSET_BEGINNING)
        at = TopicPartition(self._topic, partition, since)
        (found,) = self._consumer.offsets_for_times([at], timeout=TIMEOUT_SECONDS)
        return found.offset if found.offset >= 0 else self._ends[partition]

    def _messages(self) -> Iterator[Message]:
        left = {p for p, start in self._starts.items() if start < self._ends[p]}
        self._consumer.assign([TopicPartition(self._topic, p, self._starts[p]) for p in left])
        while left:
            message = self._consumer.poll(TIMEOUT_SECONDS)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            error, partition = message.error(), message.partition()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                left.discard(partition)
            elif message.offset() >= self._ends[partition]:
                left.discard(partition)
            else:
                yield message
        self._consumer.unassign()
