"""The engine without Kafka: one partition, a clock that moves only when told to, everything in order and repeatable.

It runs the same handler on the same bytes as the engine on Kafka. What the other services do is done here in the
simplest way: a wait comes back as a `Due` record at its moment, and a delivery is answered by a callback.
"""

import heapq
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID, uuid5

import msgspec

from processor.engine.handler import Handler
from processor.engine.metrics import ProcessorMetrics
from processor.engine.port import Decide, InputRecord, OutputRecord, RawHeaders
from schemas import records as r
from schemas.codec import AnyRecord, decode_state, encode, encode_key
from schemas.envelope import Envelope, to_headers
from schemas.state import Ladder, RecipientState
from schemas.topics import DELAYS, DELIVERIES, DUE, PROCESSOR_INPUTS, Topic

Provider = Callable[[r.Delivery, int], Iterable[r.Outcome]]
"""Answers a delivery made at a moment (milliseconds): the outcomes, each fed at its own `at`. None is a lost claim."""

SOURCE = "/rung/memory"
NAMESPACE = UUID("a4c2b7de-0f8e-5c43-9d5f-7b7e1c3b9f21")
_INPUT_OF: dict[str, Topic] = {name: topic for topic in PROCESSOR_INPUTS for name in topic.types}
_DUE = msgspec.json.Decoder(r.Due)
_DELIVERY = msgspec.json.Decoder(r.Delivery)
_DELAY_NAMES = frozenset(topic.name for topic in DELAYS)


@dataclass(frozen=True, slots=True)
class Written:
    """One output and the moment at which it was written."""

    at: int
    record: OutputRecord


class MemoryEngine:
    """A deterministic engine. All times are milliseconds since the epoch; the clock starts at `start`."""

    def __init__(
        self,
        decide: Decide,
        ladders: Mapping[str, Ladder],
        *,
        start: int = 0,
        provider: Provider | None = None,
        metrics: ProcessorMetrics | None = None,
        states: Mapping[bytes, bytes] | None = None,
        quiet: bool = False,
    ) -> None:
        """`states` are those of an earlier engine, as its `states` tells them; for `quiet` see `Handler`."""
        self._handler = Handler(decide, ladders, lambda: self._now, metrics, quiet=quiet)
        self._now = start
        self._provider = provider
        self._states = dict(states or {})
        self._offsets: dict[str, int] = {}
        self._queue: list[tuple[int, int, InputRecord]] = []
        self._scheduled = 0
        self.outputs: list[Written] = []
        """All that was written so far, in order."""

    @property
    def now(self) -> int:
        """The clock."""
        return self._now

    @property
    def states(self) -> dict[bytes, bytes]:
        """A copy of the encoded states by key: what survives a restart."""
        return dict(self._states)

    @property
    def next_at(self) -> int | None:
        """When the next thing that is scheduled happens; None if nothing is."""
        return self._queue[0][0] if self._queue else None

    def state(self, recipient: str) -> RecipientState | None:
        """The state of one recipient."""
        value = self._states.get(encode_key(recipient))
        return None if value is None else decode_state(value)

    def feed(self, topic: Topic, key: bytes | None, value: bytes | None, headers: RawHeaders | None) -> list[Written]:
        """Process one raw record now, then all that follows from it at this moment; returns what was written."""
        before = len(self.outputs)
        self._process(self._record(topic, key, value, headers, self._now))
        self.advance_to(self._now)
        return self.outputs[before:]

    def send(self, record: AnyRecord, ce_id: str | None = None) -> list[Written]:
        """Process a record now; see `feed`. Without `ce_id` every call counts as a record of its own."""
        topic, key, value, headers = self._encoded(record, ce_id, self._now)
        return self.feed(topic, key, value, headers)

    def schedule(self, at: int, record: AnyRecord, ce_id: str | None = None) -> None:
        """Process a record when the clock reaches `at`; things of one moment happen in the order of scheduling."""
        topic, key, value, headers = self._encoded(record, ce_id, at)
        self._push(at, self._record(topic, key, value, headers, at))

    def advance_to(self, at: int) -> list[Written]:
        """Move the clock to `at` and process, in order, all that is due until then; returns what was written."""
        before = len(self.outputs)
        while self._queue and self._queue[0][0] <= at:
            due, _, record = heapq.heappop(self._queue)
            self._now = max(self._now, due)
            self._process(record)
        self._now = max(self._now, at)
        return self.outputs[before:]

    def advance(self) -> bool:
        """Move the clock to the next thing that is scheduled and process that moment; False if nothing is."""
        at = self.next_at
        if at is None:
            return False
        self.advance_to(at)
        return True

    def run(self, stop: threading.Event) -> None:
        """See `port.Engine`: jumps from moment to moment until nothing is scheduled or `stop` is set."""
        while not stop.is_set() and self.advance():
            pass

    def _process(self, record: InputRecord) -> None:
        # Nothing is kept of a record whose processing fails: state, outputs and offset change together.
        store = _Store(self._states)
        outputs = self._handler.handle(record, store)
        store.apply()
        self.outputs.extend(Written(self._now, output) for output in outputs)
        for output in outputs:
            self._follow(output)

    def _follow(self, output: OutputRecord) -> None:
        if output.value is None:
            return
        if output.topic.name in _DELAY_NAMES:
            due = _DUE.decode(output.value)
            self._push(due.due_at, self._record(DUE, output.key, output.value, list(output.headers), due.due_at))
        elif output.topic is DELIVERIES and self._provider is not None:
            for outcome in self._provider(_DELIVERY.decode(output.value), self._now):
                self.schedule(outcome.at, outcome)

    def _push(self, at: int, record: InputRecord) -> None:
        self._scheduled += 1
        heapq.heappush(self._queue, (at, self._scheduled, record))

    def _record(
        self, topic: Topic, key: bytes | None, value: bytes | None, headers: RawHeaders | None, at: int
    ) -> InputRecord:
        offset = self._offsets.get(topic.name, 0)
        self._offsets[topic.name] = offset + 1
        return InputRecord(topic, 0, offset, at, key, value, headers)

    def _encoded(self, record: AnyRecord, ce_id: str | None, at: int) -> tuple[Topic, bytes, bytes, RawHeaders]:
        assert not isinstance(record, r.DeliveryEvent)  # noqa: S101 - has no single type, and is no input
        topic = _INPUT_OF[record.TYPE]
        if ce_id is None:
            ce_id = str(uuid5(NAMESPACE, f"{topic.name}|{self._offsets.get(topic.name, 0)}"))
        headers = to_headers(Envelope(ce_id, record.TYPE, SOURCE, at))
        return topic, encode_key(record.recipient), encode(record), list(headers)


class _Store:
    """The states with the changes of one record on top."""

    def __init__(self, states: dict[bytes, bytes]) -> None:
        self._states = states
        self._changes: dict[bytes, bytes | None] = {}

    def read(self, key: bytes) -> bytes | None:
        return self._changes[key] if key in self._changes else self._states.get(key)

    def write(self, key: bytes, value: bytes | None) -> None:
        self._changes[key] = value

    def apply(self) -> None:
        for key, value in self._changes.items():
            if value is None:
                self._states.pop(key, None)
            else:
                self._states[key] = value
