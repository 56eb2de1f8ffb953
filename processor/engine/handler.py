"""One record from its bytes to its outputs: read it, look at the state, decide, write the state, name the outputs.

Every engine calls this one function for every record, so all engines do the same.
"""

from collections.abc import Mapping

import structlog

from processor.domain.model import Decision, SetAside
from processor.engine import intake
from processor.engine.interpreter import dead_letter, interpret
from processor.engine.metrics import ProcessorMetrics
from processor.engine.port import Clock, Decide, InputRecord, OutputRecord, StateError, StateStore
from schemas.codec import decode_state, encode_state
from schemas.errors import DecodeError
from schemas.reasons import DeadReason, Reason
from schemas.state import Ladder, RecipientState

MAX_STATE_BYTES = 4 * 1024 * 1024
"""What one recipient's state may have at the most, all told; the changelog takes twice that."""
OPENING_BYTES = 1024 * 1024
"""Above this nothing new is opened for a recipient: such a request becomes a dead letter. What stops something (a
resolution, a profile that withdraws consent, an erasure), and what the domain adds to open ladders, is never refused;
the room above is for that."""
OPENING = frozenset({Reason.ACCEPTED, Reason.REMEMBERED, Reason.REDRIVEN})
"""Decisions that leave more behind than they found, for as long as somebody asks for more."""

_log = structlog.get_logger("rung.processor")


class Handler:
    """Processes records of any partition; not thread-safe."""

    def __init__(
        self,
        decide: Decide,
        ladders: Mapping[str, Ladder],
        clock: Clock,
        metrics: ProcessorMetrics | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        """`quiet` keeps dead letters out of the log: in a simulation there is no operator to tell."""
        self._decide = decide
        self._ladders = ladders
        self._clock = clock
        self._metrics = metrics
        self._quiet = quiet
        self._last_now: dict[int, int] = {}

    def handle(self, record: InputRecord, store: StateStore) -> list[OutputRecord]:
        """Process one record: the new state goes to `store`, the outputs are returned.

        Raises:
            StateError: the stored state of the recipient cannot be read.
        """
        now = self._now(record.partition)
        try:
            event = intake.read(record, self._ladders)
            assert record.key is not None  # noqa: S101 - intake refuses a record without one
            stored = store.read(record.key)
            if stored is None:
                intake.check_place(record)
        except DecodeError as error:
            return [self.set_aside(record, error.reason, error.detail, now)]
        state = _decoded(stored, record)
        decision = self._decide(state, event, now)
        decision = self._stored(decision, state, record.key, store)
        if self._metrics is not None:
            self._metrics.decided(event, decision, now)
        for command in decision.commands:
            if isinstance(command, SetAside):
                self._count_dead(record, command.reason)
        return interpret(decision.commands, record, now)

    def set_aside(self, record: InputRecord, reason: DeadReason, detail: str, now: int | None = None) -> OutputRecord:
        """The dead letter of a record that brings no event."""
        self._count_dead(record, reason)
        return dead_letter(record, reason, detail, self._now(record.partition) if now is None else now)

    def _now(self, partition: int) -> int:
        """The clock's time, but never earlier than before in this partition: a clock that is set back must not make
        a later record's decision earlier."""
        now, last = self._clock(), self._last_now.get(partition, 0)
        if now <= last:
            return last
        self._last_now[partition] = now
        return now

    def _stored(self, decision: Decision, state: RecipientState | None, key: bytes, store: StateStore) -> Decision:
        if decision.state is state:
            return decision
        if decision.state is None:
            store.write(key, None)
            return decision
        value = encode_state(decision.state)
        if len(value) > OPENING_BYTES and decision.reason in OPENING:
            detail = (
                f"the recipient's state would have {len(value)} bytes, and at {OPENING_BYTES} nothing more is opened"
            )
            aside = SetAside(reason=DeadReason.TOO_LARGE, detail=detail)
            return Decision(state=state, commands=(aside,), reason=Reason.TOO_LARGE)
        store.write(key, value)
        return decision

    def _count_dead(self, record: InputRecord, reason: DeadReason) -> None:
        if self._metrics is not None:
            self._metrics.dead_lettered(reason)
        if self._quiet:
            return
        _log.warning(
            "record_set_aside",
            topic=record.topic.name,
            partition=record.partition,
            offset=record.offset,
            reason=reason.value,
        )


def _decoded(value: bytes | None, record: InputRecord) -> RecipientState | None:
    if value is None:
        return None
    try:
        return decode_state(value)
    except DecodeError as error:
        raise StateError(
            f"the stored state of the recipient of {record.topic.name}[{record.partition}]@{record.offset} cannot be "
            f"read ({error.reason}); nothing was changed. Start a release that can read it"
        ) from error
