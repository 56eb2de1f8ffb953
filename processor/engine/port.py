"""The port: what an engine takes in, what it writes out, and what it promises."""

import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from processor.domain.model import Decision, Event
from schemas.envelope import Headers
from schemas.state import RecipientState
from schemas.topics import Topic

RawHeaders = list[tuple[str, bytes | None]]
"""Headers as a client library hands them over: names may repeat and values may be null."""

Decide = Callable[[RecipientState | None, Event, int], Decision]
"""The domain's one decision: state, event and the moment in milliseconds; it is pure."""

Clock = Callable[[], int]
"""Milliseconds since the epoch, UTC."""


class InputRecord(msgspec.Struct, frozen=True, gc=False):
    """One record as it was read, undecoded: key, value and headers byte for byte."""

    topic: Topic
    """The catalogue's entry, not the name on the cluster."""
    partition: int
    offset: int
    timestamp: int
    """When it was written, milliseconds since the epoch; 0 if the broker does not say."""
    key: bytes | None
    value: bytes | None
    headers: RawHeaders | None
    partitions: int | None = None
    """How many partitions the topic has; None where a record's place says nothing."""


class OutputRecord(msgspec.Struct, frozen=True, gc=False):
    """One record to be written; the engine adds the prefix of the names and picks the partition by the key."""

    topic: Topic
    key: bytes | None
    value: bytes | None
    headers: Headers


class StateStore(Protocol):
    """The states of one partition, by the recipient's key. What is written belongs to the transaction of the record in
    hand: it becomes visible together with the record's outputs and its offset, or not at all."""

    def read(self, key: bytes) -> bytes | None:
        """The encoded state, the writes of earlier records included; None if there is none."""
        ...

    def write(self, key: bytes, value: bytes | None) -> None:
        """Replace the state; None removes it."""
        ...


class Engine(Protocol):
    """What runs the processor.

    Promises, each held by the contract suite: the records of one partition of one topic are processed in order, each
    recipient's by one engine at a time; outputs, state changes and the input offset of a record become visible together
    or not at all; state survives the process and, where the engine is distributed, the loss of its disk; a record that
    cannot be understood becomes one dead letter and its partition goes on.
    """

    def run(self, stop: threading.Event) -> None:
        """Process until `stop` is set, then finish what is in hand, and return.

        Raises:
            StateError: a stored state cannot be read.
            StopTimeoutError: the work in hand could not be ended in time.
        """
        ...


class EngineError(RuntimeError):
    """The engine cannot go on; the process has to end, and may be started again."""


class StateError(EngineError):
    """A stored state cannot be read. That is a fault of ours, and going on would decide on the wrong state."""


class StopTimeoutError(EngineError):
    """What was in hand could not be ended in time; Kafka gives it up after the transaction's time-out."""
