"""Durations as they stand in a ladder file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.domain.durations import LIMIT_MS, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [
        ("500ms", 500),
        ("0s", 0),
        ("30s", 30_000),
        ("10m", 600_000),
        ("2h", 7_200_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("365d", LIMIT_MS),
    ],
)
def test_each_unit_is_read(text: str, length_ms: int) -> None:
    """A whole number and any of the five units is its length in milliseconds."""
    assert parse_duration(text) == length_ms


@pytest.mark.parametrize(
    "text", ["", "10", "m", "10 m", "-1s", "1.5h", "1h30m", "10M", "10min", "١٠m", "1s\n", "9" * 16 + "s"]
)
def test_another_form_is_refused_with_the_form_to_write(text: str) -> None:
    """What is no duration is refused, and the message shows how one is written."""
    with pytest.raises(ValueError, match='such as "500ms"'):
        parse_duration(text)


@pytest.mark.parametrize("text", ["366d", "8761h", "999999999999999d"])
def test_more_than_a_year_is_refused(text: str) -> None:
    """A length that no calendar could hold is refused, and the message names the most."""
    with pytest.raises(ValueError, match="the most is 365d"):
        parse_duration(text)


@given(st.integers(0, LIMIT_MS))
def test_what_is_written_is_read_back(length_ms: int) -> None:
    """Writing and reading a length gives the same length."""
    assert parse_duration(format_duration(length_ms)) == length_ms


def test_the_largest_fitting_unit_is_written() -> None:
    """People see 2h and not 7200000ms."""
    assert [format_duration(ms) for ms in (0, 1, 1_000, 90_000, 7_200_000, 172_800_000)] == [
        "0s",
        "1ms",
        "1s",
        "90s",
        "2h",
        "2d",
    ]
