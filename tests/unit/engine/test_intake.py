"""Which records become events, and what is too large to be one."""

from __future__ import annotations

import msgspec
import pytest

from processor.domain.decide import decide
from processor.domain.model import Event, NotifyReceived, RecipientErased, RecipientPut, ResolutionReceived, WokeUp
from processor.engine import intake
from processor.engine.handler import Handler
from processor.engine.port import InputRecord, OutputRecord
from schemas import records as r
from schemas.codec import AnyRecord, decode_state, encode_state
from schemas.errors import DecodeError
from schemas.partitioner import partition_of
from schemas.profile import Profile
from schemas.reasons import DeadReason
from schemas.state import RecipientState
from schemas.topics import DEAD_LETTERS, DELAYS, DUE, NOTIFICATIONS, RESOLUTIONS, Topic
from tests.support.engine import LADDERS, notify, raw

KIB = 1024


def record(topic: Topic, value: AnyRecord) -> InputRecord:
    """A record as an engine reads it."""
    key, body, headers = raw(value, "id-1")
    pairs = [(name, text if isinstance(text, bytes) else text.encode()) for name, text in headers.items()]
    return InputRecord(topic, 0, 0, 0, key, body, list(pairs))


def test_each_record_becomes_its_event() -> None:
    """The `ce_id` goes along for what comes from outside; a notification gets the ladder of its kind."""
    asked = notify("ada", "k")
    put = r.PutRecipient(recipient="ada", profile=Profile())
    resolve = r.Resolve(recipient="ada", dedup_key="k", resolution="paid")
    erase = r.EraseRecipient(recipient="ada")
    expected: list[tuple[Topic, AnyRecord, Event]] = [
        (NOTIFICATIONS, asked, NotifyReceived(ce_id="id-1", notify=asked, ladder=LADDERS["payment"])),
        (NOTIFICATIONS, put, RecipientPut(ce_id="id-1", put=put)),
        (NOTIFICATIONS, erase, RecipientErased(ce_id="id-1", erase=erase)),
        (RESOLUTIONS, resolve, ResolutionReceived(ce_id="id-1", resolve=resolve)),
        (DUE, r.Due(recipient="ada", due_at=5), WokeUp(recipient="ada", due_at=5)),
    ]
    for topic, value, event in expected:
        assert intake.read(record(topic, value), LADDERS) == event


@pytest.mark.parametrize("partitions", [1, 2, 12])
def test_a_record_is_read_only_where_its_key_belongs(partitions: int) -> None:
    """Whatever it says: in every other partition it is set aside, and where records have no place it is read."""
    for number in range(40):
        asked = record(RESOLUTIONS, r.Resolve(recipient=f"p{number}", dedup_key="k", resolution="paid"))
        intake.check_place(asked)
        place = partition_of(asked.key or b"", partitions)
        for partition in range(partitions):
            stores = _Stores({})
            outputs = handle(asked, partition, partitions, stores)
            if partition == place:
                assert (outputs, list(stores.states)) == ([], [asked.key])
                continue
            (letter,) = outputs
            assert (letter.topic, stores.states) == (DEAD_LETTERS, {})
            assert dict(letter.headers)["rung_dl_reason"] == DeadReason.WRONG_PARTITION.value.encode()
            assert f"belongs in partition {place} of {partitions}" in dict(letter.headers)["rung_dl_detail"].decode()


def test_a_place_with_a_state_is_not_doubted() -> None:
    """What is known of a recipient lies where it was decided: a record beside it is decided on it, and the hash that
    would say the same is spared."""
    asked = record(RESOLUTIONS, r.Resolve(recipient="ada", dedup_key="k", resolution="paid"))
    elsewhere = 1 - partition_of(b"ada", 2)
    stores = _Stores({b"ada": encode_state(RecipientState(recipient="ada", profile=Profile()))})
    assert handle(asked, elsewhere, 2, stores) == []
    assert "k" in decode_state(stores.states[b"ada"]).early


class _Stores:
    """The states of one partition."""

    def __init__(self, states: dict[bytes, bytes]) -> None:
        self.states = states

    def read(self, key: bytes) -> bytes | None:
        return self.states.get(key)

    def write(self, key: bytes, value: bytes | None) -> None:
        assert value is not None
        self.states[key] = value


def handle(asked: InputRecord, partition: int, partitions: int, stores: _Stores) -> list[OutputRecord]:
    """What an early resolution makes the processor write, its wake-up left out."""
    handler = Handler(decide, LADDERS, lambda: 1_790_000_000_000, quiet=True)
    outputs = handler.handle(msgspec.structs.replace(asked, partition=partition, partitions=partitions), stores)
    return [output for output in outputs if output.topic.name not in {topic.name for topic in DELAYS}]


@pytest.mark.parametrize(
    ("topic", "fits", "too_large"),
    [
        pytest.param(
            NOTIFICATIONS,
            notify("ada", "k", text="x" * (1023 * KIB)),
            notify("ada", "k", text="x" * (1024 * KIB)),
            id="notification",
        ),
        pytest.param(
            NOTIFICATIONS,
            r.PutRecipient(recipient="ada", profile=Profile(locale="x" * (255 * KIB))),
            r.PutRecipient(recipient="ada", profile=Profile(locale="x" * (256 * KIB))),
            id="profile",
        ),
        pytest.param(
            RESOLUTIONS,
            r.Resolve(recipient="ada", dedup_key="k", resolution="x" * (63 * KIB)),
            r.Resolve(recipient="ada", dedup_key="k", resolution="x" * (64 * KIB)),
            id="resolution",
        ),
        pytest.param(NOTIFICATIONS, notify("ada", "ä" * (8 * KIB)), notify("ada", "ä" * (8 * KIB) + "x"), id="name"),
    ],
)
def test_what_is_too_large_is_told_apart(topic: Topic, fits: AnyRecord, too_large: AnyRecord) -> None:
    """A record at its limit is an event, and one above it a dead letter with the reason."""
    intake.read(record(topic, fits), LADDERS)
    with pytest.raises(DecodeError) as error:
        intake.read(record(topic, too_large), LADDERS)
    assert error.value.reason is DeadReason.TOO_LARGE
