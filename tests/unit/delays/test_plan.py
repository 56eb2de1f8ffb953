"""Where a record goes next and when, for every moment and tier."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.delays.plan import due_at, next_tier, release_at
from schemas.errors import DecodeError
from schemas.reasons import DeadReason
from schemas.topics import HOUR_MS, OVERSHOOT_MS, TIERS, Tier, tier_for

NOW = 1_790_000_000_000
MOST_HOPS = 25
"""Below 64 h each tier is used fewer times than it fits into the next: eight doubled ones once, 5 min and 2 min twice,
30 s three times, 5 s five times, 1 s four times; and then the last stretch."""


def climb(due: int, start: int, late: list[int]) -> tuple[int, list[int]]:
    """Follow a record from its first append at `start`; each release is `late` by some milliseconds. Returns when it is
    forwarded to `due`, and the wait in each tier."""
    now, waits = start, []
    tier = tier_for(due - now)
    while True:
        release = release_at(due, now, tier, now)
        waits.append(release - now)
        now = max(now, release) + (late.pop() if late else 0)
        following = next_tier(due, now)
        if following is None:
            return now, waits
        tier = following


@given(st.integers(0, 1_000 * HOUR_MS))
def test_the_waits_of_a_record_add_up_exactly(remaining: int) -> None:
    """Without any delay of ours a record reaches `due` in its very millisecond; each wait is a tier or the rest."""
    at, waits = climb(NOW + remaining, NOW, [])
    assert at == NOW + remaining
    assert sum(waits) == remaining
    assert all(wait in {tier.delay_ms for tier in TIERS} for wait in waits[:-1])


@given(st.integers(-HOUR_MS, 64 * HOUR_MS - 1), st.lists(st.integers(0, 400_000), max_size=30))
def test_never_early_and_few_hops(remaining: int, late: list[int]) -> None:
    """However late each hop is, nothing is early, lateness does not add up, and the hops are bounded."""
    due = NOW + remaining
    at, waits = climb(due, NOW, list(late))
    assert at >= due
    assert len(waits) <= MOST_HOPS
    # What is late was late in the last hop alone, or the moment had passed in the hop before.
    assert at - max(due, NOW) <= max([0, *late])


@given(
    st.integers(NOW - HOUR_MS, NOW + 100 * HOUR_MS),
    st.none() | st.integers(0, NOW * 2),
    st.sampled_from(TIERS),
    st.integers(NOW - HOUR_MS, NOW + HOUR_MS),
)
def test_a_release_is_never_after_the_moment_or_a_whole_tier(
    due: int, appended: int | None, tier: object, now: int
) -> None:
    """Whatever the append time says: no record leaves after its moment, nor a tier's length after it was read."""
    release = release_at(due, appended, tier, now)  # type: ignore[arg-type]
    assert release <= due
    assert release <= now + tier.delay_ms  # type: ignore[attr-defined]


@given(st.integers(1, 1_000 * HOUR_MS))
def test_the_next_tier_is_the_largest_that_hardly_overshoots(remaining: int) -> None:
    """No larger tier would fit; below the smallest it is the smallest, where the rest is waited out."""
    tier = next_tier(NOW + remaining, NOW)
    assert tier is not None
    assert tier.delay_ms <= remaining + OVERSHOOT_MS or tier is TIERS[0]
    assert all(other.delay_ms > remaining + OVERSHOOT_MS for other in TIERS if other.delay_ms > tier.delay_ms)


@pytest.mark.parametrize("tier", TIERS)
def test_a_wait_that_was_planned_a_moment_ago_takes_one_hop(tier: Tier) -> None:
    """It is as long as a tier but for the time that the plan took, and leaves at its moment."""
    at, waits = climb(NOW + tier.delay_ms, NOW + 80, [])
    assert (at, waits) == (NOW + tier.delay_ms, [tier.delay_ms - 80])


def test_hops_that_come_a_little_late_need_no_more_of_them() -> None:
    """Three days, with each hop 60 ms late: 64 h and 8 h, and no tail of ever smaller tiers."""
    at, waits = climb(NOW + 72 * HOUR_MS, NOW, [60, 60])
    assert at == NOW + 72 * HOUR_MS + 60
    assert len(waits) == 2


@pytest.mark.parametrize("remaining", [0, -1, -(10**9)])
def test_what_is_due_goes_to_due(remaining: int) -> None:
    """A moment that is now or has passed needs no tier."""
    assert next_tier(NOW + remaining, NOW) is None


def test_an_append_time_ahead_counts_as_now() -> None:
    """A writer whose clock runs ahead, or a clock set back since, does not lengthen a wait."""
    assert release_at(NOW + 10 * HOUR_MS, NOW + HOUR_MS, TIERS[1], NOW) == NOW + TIERS[1].delay_ms


def test_the_last_header_counts() -> None:
    """A repeated header is no fault; CloudEvents headers are read the same way."""
    assert due_at([("due_at", b"1"), ("other", b"x"), ("due_at", b"27")]) == 27
    assert due_at([("due_at", "27")]) == 27


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (None, DeadReason.MISSING_HEADER),
        ([("other", b"1")], DeadReason.MISSING_HEADER),
        ([("due_at", None)], DeadReason.MISSING_HEADER),
        ([("due_at", b"")], DeadReason.MISSING_HEADER),
        ([("due_at", b"-1")], DeadReason.BAD_HEADER),
        ([("due_at", b"1.5")], DeadReason.BAD_HEADER),
        ([("due_at", b" 1")], DeadReason.BAD_HEADER),
        ([("due_at", b"1\n")], DeadReason.BAD_HEADER),
        ([("due_at", "١٢".encode())], DeadReason.BAD_HEADER),
        ([("due_at", "١٢")], DeadReason.BAD_HEADER),
        ([("due_at", b"\xff\xfe")], DeadReason.BAD_HEADER),
        ([("due_at", "\udc80")], DeadReason.BAD_HEADER),
        ([("due_at", str(NOW * 1_000).encode())], DeadReason.BAD_HEADER),
        ([("due_at", b"9" * 5_000)], DeadReason.BAD_HEADER),
    ],
)
def test_what_is_no_moment_has_a_named_reason(
    headers: list[tuple[str, bytes | str | None]] | None, reason: DeadReason
) -> None:
    """Absent, signed, fractional, padded, not ASCII, or in another unit: a named reason, never another exception."""
    with pytest.raises(DecodeError) as raised:
        due_at(headers)
    assert raised.value.reason is reason


@given(st.binary(max_size=40))
def test_any_bytes_are_a_moment_or_a_named_reason(value: bytes) -> None:
    """No bytes let another exception out."""
    with contextlib.suppress(DecodeError):
        assert due_at([("due_at", value)]) == int(value)
