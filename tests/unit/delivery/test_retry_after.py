"""Retry-After in every form that providers use."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.delivery.retry_after import LIMIT_MS, parse_retry_after

NOW = round(datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "wait_ms"),
    [
        (None, None),
        ("", None),
        ("0", 0),
        ("1", 1_000),
        (" 120 ", 120_000),
        ("1.5", 1_500),
        ("0.0001", 1),
        ("2.", 2_000),
        ("-1", None),
        ("+1", None),
        ("1e3", None),
        ("nan", None),
        ("inf", None),
        ("٣", None),
        ("soon", None),
        ("1 minute", None),
        ("99999999999999999", LIMIT_MS),
        ("9" * 400, None),
        ("Sun, 01 Mar 2026 12:00:07 GMT", 7_000),
        ("Sun, 01 Mar 2026 13:00:07 +0100", 7_000),
        ("Sun, 01 Mar 2026 12:00:07", 7_000),
        ("Sunday, 01-Mar-26 12:00:07 GMT", 7_000),
        ("Sun Mar  1 12:00:07 2026", 7_000),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("Sun, 01 Mar 2099 12:00:00 GMT", LIMIT_MS),
        ("Sun, 41 Mar 2026 12:00:00 GMT", None),
        ("Sun, 01 Mar 99999 12:00:00 GMT", None),
        ("1, 2", None),
    ],
)
def test_each_form_means_what_it_should(text: str | None, wait_ms: int | None) -> None:
    """Seconds, fractions, the three forms of an HTTP date, and everything that is none of them."""
    assert parse_retry_after(text, NOW) == wait_ms


@given(st.text(max_size=60))
def test_any_text_gives_a_bounded_wait_or_nothing(text: str) -> None:
    """Whatever a provider writes, nothing breaks and no wait is longer than a day."""
    wait = parse_retry_after(text, NOW)
    assert wait is None or 0 <= wait <= LIMIT_MS


@given(st.integers(min_value=0, max_value=86_000))
def test_a_number_and_the_date_it_leads_to_are_the_same_wait(seconds: int) -> None:
    """The two forms of the header agree."""
    date = format_datetime(datetime.fromtimestamp(NOW / 1000 + seconds, UTC), usegmt=True)
    assert parse_retry_after(str(seconds), NOW) == parse_retry_after(date, NOW) == seconds * 1000


@given(st.decimals(min_value=0, max_value=86_000, places=6))
def test_a_fraction_is_never_cut_short(seconds: object) -> None:
    """Rounded up to the next millisecond."""
    wait = parse_retry_after(f"{seconds:f}", NOW)
    assert wait is not None
    assert float(str(seconds)) * 1000 <= wait + 1e-6
    assert wait < float(str(seconds)) * 1000 + 1 + 1e-6
