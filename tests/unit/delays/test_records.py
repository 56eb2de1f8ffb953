"""What becomes of a held record: forwarded unchanged, or a dead letter with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from relay.delays.records import Held, hold, output
from schemas.reasons import DeadReason
from schemas.topics import DEAD_LETTERS, DUE, TIERS

NOW = 1_790_000_000_000
SMALLEST = TIERS[0]


def held(
    key: bytes | None = b"ada", value: bytes | None = b"{}", headers: Any = ..., appended_at: int | None = NOW
) -> Held:
    """A record that is read at NOW."""
    given = [("due_at", str(NOW + 400).encode()), ("x", None)] if headers is ... else headers
    return hold(SMALLEST, (3, 17), key, value, given, appended_at, NOW)


def test_a_record_is_forwarded_as_it_came() -> None:
    """Key, value and headers are the same objects; the target follows from what remains."""
    record = held(headers=[("due_at", str(NOW + 6_000).encode()), ("x", None)])
    assert record.release_at == NOW + 1_000
    hop = output(record, NOW + 1_000)
    assert (hop.target, hop.headers) == (TIERS[1], record.headers)
    assert output(record, NOW + 6_000).target is DUE


def test_without_an_append_time_the_wait_starts_when_it_is_read() -> None:
    """A topic may be configured without times; the record still leaves."""
    record = held(headers=[("due_at", str(NOW + 6_000).encode())], appended_at=None)
    assert (record.release_at, record.late_ms) == (NOW + 1_000, 0)


def test_lateness_of_reading_is_beyond_the_tier() -> None:
    """A record read within its tier's length is in time; after it, late by the rest."""
    assert held(appended_at=NOW - 1_000).late_ms == 0
    assert held(appended_at=NOW - 4_500).late_ms == 3_500


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"key": None}, DeadReason.NULL_KEY),
        ({"key": b""}, DeadReason.NULL_KEY),
        ({"key": b"\xff"}, DeadReason.KEY_NOT_UTF8),
        ({"value": None}, DeadReason.NULL_VALUE),
        ({"headers": []}, DeadReason.MISSING_HEADER),
        ({"headers": [("due_at", b"soon")]}, DeadReason.BAD_HEADER),
        ({"headers": None}, DeadReason.BAD_HEADER),
    ],
)
def test_a_malformed_record_leaves_at_once_as_a_dead_letter(fault: dict[str, Any], reason: DeadReason) -> None:
    """It does not wait, keeps its bytes, and says why and where from."""
    record = held(**fault)
    assert record.release_at == 0
    letter = output(record, NOW)
    headers = dict(letter.headers)
    assert letter.target is DEAD_LETTERS
    assert headers["rung_dl_reason"] == reason.encode()
    assert (headers["rung_dl_topic"], headers["rung_dl_offset"]) == (b"delay.1s", b"17")
    assert (record.key, record.value) == (fault.get("key", b"ada"), fault.get("value", b"{}"))


def test_a_record_too_large_to_forward_is_a_dead_letter_and_never_stuck() -> None:
    """Refused with others it is no culprit yet; refused alone it is set aside whole; and if the dead letters refuse it
    as well, without its value, and the detail says so."""
    record = held(value=b"x" * 10)
    record.refused()
    assert (record.suspect, output(record, NOW + 400).target) == (True, DUE)
    record.refused()
    whole = output(record, NOW)
    assert (whole.target, record.value) == (DEAD_LETTERS, b"x" * 10)
    assert dict(whole.headers)["rung_dl_reason"] == b"too_large"
    record.refused()
    assert record.value is None
    assert b"10 bytes" in (dict(output(record, NOW).headers)["rung_dl_detail"] or b"")
