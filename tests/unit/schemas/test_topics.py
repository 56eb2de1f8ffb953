"""The catalogue of topics and the tiers of delay."""

from hypothesis import given
from hypothesis import strategies as st

from schemas import topics
from schemas.codec import RECORDS
from schemas.topics import CATALOGUE, TIERS, Naming, tier_for


def test_names_are_unique_and_every_type_is_known() -> None:
    """Two entries never share a topic, and a topic carries only types that the codec can read."""
    assert len({topic.name for topic in CATALOGUE}) == len(CATALOGUE)
    assert {name for topic in CATALOGUE for name in topic.types} == set(RECORDS)


def test_the_tiers_are_the_stated_ones() -> None:
    """1 s, 5 s, 30 s, 2 min, 5 min, then doubling from 15 min to 64 h, each named by its length."""
    assert [tier.name for tier in TIERS] == (
        ["1s", "5s", "30s", "2m", "5m", "15m", "30m", "1h", "2h", "4h", "8h", "16h", "32h", "64h"]
    )
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000}
    assert all(tier.delay_ms == int(tier.name[:-1]) * units[tier.name[-1]] for tier in TIERS)


def test_delay_topics_outlive_their_tier() -> None:
    """A record may wait a whole tier and must then survive a week without a delayer."""
    for tier, topic in zip(TIERS, topics.DELAYS, strict=True):
        assert topic.name == tier.topic
        assert topic.retention_ms == tier.delay_ms + 7 * topics.DAY_MS


@given(st.integers(-(2**40), 2**40))
def test_a_tier_hardly_overshoots_and_is_the_largest(remaining: int) -> None:
    """From the first tier's length on, the chosen one ends in time or a moment later; the next larger one would not."""
    tier = tier_for(remaining)
    larger = [other for other in TIERS if other.delay_ms > tier.delay_ms]
    most = remaining + topics.OVERSHOOT_MS
    assert tier.delay_ms <= most or tier is TIERS[0]
    assert all(other.delay_ms > most for other in larger)


@given(st.integers(1, 400 * topics.DAY_MS))
def test_a_wait_of_a_year_takes_few_hops(remaining: int) -> None:
    """Hop by hop the rest shrinks to less than the smallest tier, with a bounded number of records."""
    hops = 0
    while remaining >= TIERS[0].delay_ms:
        remaining -= tier_for(remaining).delay_ms
        hops += 1
    # The whole of it in the largest tier, and a few hops in each smaller one.
    assert hops <= 400 * 24 // 64 + 30


def test_a_prefix_lets_systems_share_a_cluster() -> None:
    """Topics and tiers get the same prefix; without one the catalogue's names are used."""
    assert Naming("blue.")(topics.DUE) == "blue.due"
    assert Naming("blue.")(TIERS[0]) == "blue.delay.1s"
    assert Naming()(topics.DUE) == "due"
