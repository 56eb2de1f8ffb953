"""Token buckets and windows under a clock of the test's own."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from processor.delivery.limits import MAX_WINDOWS, ProviderLimits, TokenBucket


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    """Ten per second with a burst of three: three now, then one each 100 ms."""
    bucket = TokenBucket(10, 3, 0)
    for _ in range(3):
        assert bucket.wait_ms(0) == 0
        bucket.take(0)
    assert bucket.wait_ms(0) == 100
    assert bucket.wait_ms(60) == 40
    assert bucket.wait_ms(100) == 0


def test_without_a_rate_nothing_waits() -> None:
    """No rate is no limit."""
    bucket = TokenBucket(None, 1, 0)
    for _ in range(1000):
        assert bucket.wait_ms(0) == 0
        bucket.take(0)


def test_a_share_scales_the_rate_and_nothing_is_nothing() -> None:
    """Half of the partitions, half of the rate; none of them, no call."""
    bucket = TokenBucket(10, 1, 0)
    bucket.set_share(0.5, 0)
    bucket.take(0)
    assert bucket.wait_ms(0) == 200
    bucket.set_share(0, 0)
    assert bucket.wait_ms(10_000) is None


def test_a_clock_that_is_set_back_neither_gives_nor_takes() -> None:
    """The bucket goes on from where the clock is now."""
    bucket = TokenBucket(1, 1, 1_000_000)
    bucket.take(1_000_000)
    assert bucket.wait_ms(0) == 1_000
    assert bucket.wait_ms(1_000) == 0


@given(
    rate=st.floats(0.1, 1_000),
    burst=st.floats(1, 50),
    steps=st.lists(st.integers(0, 500), max_size=80),
)
def test_no_span_has_more_calls_than_rate_and_burst_allow(rate: float, burst: float, steps: list[int]) -> None:
    """Whenever calls are taken as soon as there is a token, any span of time has at most burst + rate * span."""
    bucket, now, times = TokenBucket(rate, burst, 0), 0, []
    for step in steps:
        now += step
        while bucket.wait_ms(now) == 0 and len(times) < 2_000:
            bucket.take(now)
            times.append(now)
    for i, start in enumerate(times):
        for j in range(i, len(times), 7):
            assert j - i + 1 <= burst + rate * (times[j] - start) / 1000 + 1e-6


@settings(max_examples=20)
@given(parts=st.lists(st.integers(1, 20), min_size=1, max_size=6), rate=st.floats(1, 500))
def test_the_shares_of_all_workers_are_the_rate(parts: list[int], rate: float) -> None:
    """However the partitions fall, the workers together make no more calls per second than the provider's rate."""
    total, seconds = sum(parts), 5
    calls = 0
    for part in parts:
        bucket = TokenBucket(rate, 1, 0)
        bucket.set_share(part / total, 0)
        for now in range(0, seconds * 1000, 5):
            while bucket.wait_ms(now) == 0:
                bucket.take(now)
                calls += 1
    assert calls <= rate * seconds + len(parts)


def test_a_window_counts_for_its_target_or_for_all() -> None:
    """One recipient's server closes its own window; the provider's closes everyone's."""
    limits = ProviderLimits(TokenBucket(None, 1, 0), 1)
    limits.close("https://a.example", 500)
    assert limits.opens_at("https://a.example", 100) == 500
    assert limits.opens_at("https://b.example", 100) <= 100
    limits.close("", 900)
    limits.close("", 300)
    assert limits.opens_at("https://b.example", 100) == 900
    assert limits.opens_at("https://a.example", 600) == 900


def test_a_clock_that_is_set_back_prolongs_no_window() -> None:
    """Closed for as long as it would have been."""
    limits = ProviderLimits(TokenBucket(None, 1, 0), 1)
    limits.close("a", 3_600_500)
    limits.close("", 3_600_300)
    limits.clock_set_back(3_600_000)
    assert (limits.opens_at("a", 0), limits.opens_at("b", 0)) == (500, 300)


def test_many_targets_take_bounded_memory() -> None:
    """Beyond the limit the windows that open first are forgotten."""
    limits = ProviderLimits(TokenBucket(None, 1, 0), 1)
    for n in range(MAX_WINDOWS + 2):
        limits.close(f"t{n}", 1_000 + n)
    assert limits.opens_at("t0", 0) == limits.opens_at("t1", 0) == 0
    assert limits.opens_at("t2", 0) == 1_002
