"""Event ids as the journal keeps them."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from relay.journal.events import row_id


@given(st.uuids())
def test_our_ids_stay_as_they_are(identity: UUID) -> None:
    """An event is found in the journal by the `ce_id` that it has on the topic."""
    assert row_id(str(identity)) == str(identity)
    assert row_id(str(identity).upper()) == str(identity)


@given(st.text(min_size=1), st.text(min_size=1))
def test_foreign_ids_become_distinct_uuids(one: str, other: str) -> None:
    """Another writer's ids of any form are kept apart, and the same one is the same again."""
    assert str(UUID(row_id(one))) == row_id(one) == row_id(one)
    assert (row_id(one) == row_id(other)) == (one == other)
