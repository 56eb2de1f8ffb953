"""The bitmap in a committed offset's metadata."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.delays.progress import SPAN, UnknownProgressError, decode_done, encode_done

LOWS = st.integers(0, 2**62)


@given(LOWS, st.sets(st.integers(0, SPAN - 1), max_size=200))
def test_what_is_written_is_read(low: int, places: set[int]) -> None:
    """Every set of offsets within the span comes back as it was."""
    done = {low + place for place in places}
    assert decode_done(low, encode_done(low, done)) == done


def test_a_full_span_fits_the_broker() -> None:
    """The most that can be written is below the broker's default limit of 4096 bytes."""
    text = encode_done(7, range(7, 7 + SPAN))
    assert len(text.encode()) < 3_000
    assert decode_done(7, text) == set(range(7, 7 + SPAN))


@pytest.mark.parametrize("offset", [4, 5 + SPAN])
def test_an_offset_outside_the_span_is_refused(offset: int) -> None:
    """Nothing is dropped silently from what is recorded."""
    with pytest.raises(ValueError, match="do not lie within"):
        encode_done(5, {5, offset})


@pytest.mark.parametrize("metadata", [None, ""])
def test_no_metadata_is_nothing_done(metadata: str | None) -> None:
    """A plain commit has no metadata."""
    assert decode_done(3, metadata) == set()


@pytest.mark.parametrize("metadata", ["2:AA==", "hello", "1:@@@@", "1:A", "1:é", "1:" + "AAAA" * 1_000])
def test_foreign_metadata_is_told_apart(metadata: str) -> None:
    """What this program did not write is not taken for offsets that are done."""
    with pytest.raises(UnknownProgressError):
        decode_done(3, metadata)


@given(st.text(max_size=60))
def test_any_text_is_offsets_or_unknown(metadata: str) -> None:
    """No text lets another exception out."""
    with contextlib.suppress(UnknownProgressError):
        decode_done(0, "1:" + metadata)
