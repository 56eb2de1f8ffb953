"""The changelog's records are quixstreams': its own names for the headers, and its own key."""

from __future__ import annotations

from quixstreams.state.metadata import (
    CHANGELOG_CF_MESSAGE_HEADER,
    CHANGELOG_PROCESSED_OFFSETS_MESSAGE_HEADER,
    SEPARATOR,
)

from processor.engine.changelog import FAMILY_HEADER, OFFSETS_HEADER, changelog_key


def test_the_headers_are_quixstreams() -> None:
    """A release that renames them would not read what was written before."""
    assert FAMILY_HEADER == CHANGELOG_CF_MESSAGE_HEADER
    assert OFFSETS_HEADER == CHANGELOG_PROCESSED_OFFSETS_MESSAGE_HEADER


def test_the_key_is_quixstreams() -> None:
    """Its prefix and its name, with its separator."""
    assert changelog_key(b"ada") == b"ada" + SEPARATOR + b"state"
