"""The marks on a dead letter."""

import pytest

from schemas.dead_letters import DETAIL_LIMIT, PREFIX, DeadLetter
from schemas.reasons import DeadReason
from schemas.topics import DEAD_LETTERS


def letter(detail: str = "why", offset: int = 7) -> DeadLetter:
    """A dead letter of some record."""
    return DeadLetter(DeadReason.NOT_JSON, detail, "notifications", 3, offset, "processor", 1_777_636_800_000)


def test_the_original_headers_stay_and_ours_say_why() -> None:
    """A redrive finds the record's own headers as they were, texts and missing values as bytes."""
    headers = letter().headers([("ce_id", b"1"), ("trace", "ü"), ("empty", None), ("ce_id", b"2")])
    assert headers[:4] == [("ce_id", b"1"), ("trace", "ü".encode()), ("empty", b""), ("ce_id", b"2")]
    assert dict(headers[4:]) == {
        "rung_dl_reason": b"not_json",
        "rung_dl_detail": b"why",
        "rung_dl_topic": b"notifications",
        "rung_dl_partition": b"3",
        "rung_dl_offset": b"7",
        "rung_dl_service": b"processor",
        "rung_dl_at": b"1777636800000",
    }


def test_a_record_that_fails_again_says_why_it_failed_last() -> None:
    """Marks of an earlier time are replaced and do not pile up."""
    again = letter(offset=8).headers(letter(offset=7).headers(None))
    assert [value for name, value in again if name == PREFIX + "offset"] == [b"8"]
    assert len(again) == 7


def test_a_detail_is_cut_and_always_encodable() -> None:
    """A detail of any length and any text makes a header of bounded size."""
    headers = dict(letter("\ud800" + "x" * 10_000).headers(None))
    assert len(headers["rung_dl_detail"]) <= 4 * DETAIL_LIMIT


@pytest.mark.parametrize(
    ("key", "value", "header", "left"),
    [
        (10, 1_000, 10, (10, 1_000)),
        (10, 2_000_000, 10, (10, 2_000_000)),
        (10, 3_000_000, 10, (10, None)),
        (10, 1_050_000, 1_050_000, (10, None)),
        (2_000_000, 200_000, 10, (2_000_000, None)),
        (3_000_000, 1, 10, (None, None)),
        (10, 1, 3_000_000, (None, None)),
        (900_000, 900_000, 900_000, (900_000, None)),
    ],
)
def test_what_the_topic_cannot_hold_is_left_out(
    key: int, value: int, header: int, left: tuple[int | None, int | None]
) -> None:
    """A record that was compressed may be larger than any topic takes: first its value goes, then all of it, and the
    marks say so; what is written always fits."""
    written = letter("w" * DETAIL_LIMIT).record(b"k" * key, b"v" * value, [("h", b"h" * header)])
    sizes = tuple(None if part is None else len(part) for part in (written.key, written.value))
    assert sizes == left
    marks = dict(written.headers)
    assert (b"left out" in marks[PREFIX + "detail"]) == (left != (key, value))
    assert ("h" in marks) == (left[0] is not None)
    total = sum(len(name) + len(content) for name, content in written.headers) + sum(size or 0 for size in sizes)
    assert total < DEAD_LETTERS.max_message_bytes
