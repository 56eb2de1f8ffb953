"""Derived ids outlive every release: known answers that must never change."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import notification_id, uuid5_text


@pytest.mark.parametrize(
    ("recipient", "dedup_key", "known"),
    [
        ("ada", "k", "1e9121a6-eec0-80d8-9e55-c8accc061c6d"),
        ("a", "bc", "18437c88-8810-8921-8ba9-cb26bbfa9ee6"),
        ("ab", "c", "47034b24-9895-824a-a548-f36beda80fac"),
        ("zo\u00eb", "k", "95000a07-eb62-8792-90af-82deae5d087c"),
    ],
)
def test_the_id_of_a_notification_never_changes(recipient: str, dedup_key: str, known: str) -> None:
    """A repeat that is written by a later release still meets its first notification."""
    assert str(notification_id(recipient, dedup_key)) == known


@given(st.uuids(), st.text(st.characters(exclude_categories=["Cs"])))
def test_the_short_way_to_a_name_based_id_leads_to_the_same_one(namespace: uuid.UUID, name: str) -> None:
    """The library's own way is the standard's, and what was derived by it stays what it was."""
    assert uuid5_text(namespace, name) == str(uuid.uuid5(namespace, name))
