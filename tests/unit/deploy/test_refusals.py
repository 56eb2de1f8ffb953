"""What would lose data, judged from numbers: each refusal and the nearest case that is none."""

from __future__ import annotations

from deploy import refusals
from deploy.refusals import Loss

INPUTS = ("due", "notifications")
EVEN = {"due": 4, "notifications": 4, "changelog": 4}


def test_missing_topics_are_named_with_the_command_that_makes_them() -> None:
    """All at once, and nothing where all are there."""
    assert refusals.missing_topics(["b", "a", "c"], {"b": 1}) == (
        "topics are missing: a, c; create them with `rung topics create`"
    )
    assert refusals.missing_topics(["b"], {"b": 1}) is None


def test_topics_that_belong_together_have_one_number_of_partitions() -> None:
    """The refusal lists them by their number."""
    assert refusals.uneven_topics(["a", "b"], {"a": 4, "b": 4, "other": 9}) is None
    assert refusals.uneven_topics([], {}) is None
    found = refusals.uneven_topics(["a", "b", "c"], {"a": 4, "b": 8, "c": 4})
    assert found is not None
    assert "4 partitions: a, c; 8 partitions: b" in found


def test_a_changelog_must_hold_the_state_of_its_inputs() -> None:
    """Missing only counts once something was committed; deleting by age and another number of partitions always."""

    def judge(counts: dict[str, int], cleanup: str | None = "compact", *, committed: bool = True) -> str | None:
        return refusals.bad_changelog("changelog", INPUTS, counts, cleanup, committed=committed)

    assert judge(EVEN) is None
    assert judge(EVEN, None) is None
    without = {"due": 4, "notifications": 4}
    assert judge(without, committed=False) is None
    assert "the processor's state is gone" in str(judge(without))
    for cleanup in ("delete", "compact,delete"):
        assert f"cleanup.policy={cleanup}" in str(judge(EVEN, cleanup, committed=False))
    assert "built with 4 partitions (changelog), and due has 8" in str(judge(EVEN | {"due": 8}))


def test_a_position_below_the_first_record_is_a_loss() -> None:
    """At it or above is none; a place whose beginning is not known, and one never committed, are none."""
    begins = {("plain", 0): 10, ("plain", 1): 10, ("plain", 2): 10}
    positions = {("plain", 0): 9, ("plain", 1): 10, ("plain", 2): -1001, ("plain", 3): 5}
    assert refusals.losses(positions, begins, frozenset()) == [Loss("plain", 0, 9, 10)]
    assert Loss("plain", 0, 7, 10).records == 3


def test_the_mark_of_a_transaction_is_no_loss() -> None:
    """Where only the end of the last transaction was not passed, nothing was lost; one more offset is a record."""
    inside = frozenset({"due"})
    assert refusals.losses({("due", 0): 9}, {("due", 0): 10}, inside) == []
    assert refusals.losses({("due", 0): 8}, {("due", 0): 10}, inside) == [Loss("due", 0, 8, 10)]


def test_a_long_list_of_losses_stays_one_sentence() -> None:
    """The first three places, and how many more there are; the way out is in it."""
    text = refusals.lost_records("rung-delays", [Loss("t", n, 1, 5) for n in range(9)])
    assert text is not None
    assert "t[2]: stands at 1, and Kafka begins at 5; and 6 more" in text
    assert "rung accept-loss --yes" in text
    assert refusals.lost_records("rung-delays", []) is None


def test_what_is_dropped_is_counted() -> None:
    """Kinds and channels by name with how many are open, and nothing where none is."""
    assert refusals.dropped_kinds({}) is None
    assert refusals.dropped_channels({}) is None
    assert "ladders.toml has no a (2 open), b (1 open) any more" in str(refusals.dropped_kinds({"b": 1, "a": 2}))
    assert "channels.toml has no sms (3 open) any more" in str(refusals.dropped_channels({"sms": 3}))
