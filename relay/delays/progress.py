"""How far a partition has been forwarded, exactly: a committed offset, and a bitmap of what was forwarded above it.

The bitmap travels in the committed offset's metadata, a string: a version, a colon, and base64 of the bits, where bit
`i` (bit `i % 8`, from the least significant, of byte `i // 8`) stands for the offset `low + i`. An empty string is no
such offset. Pure.
"""

import base64
import binascii
from collections.abc import Collection

SPAN = 16_384
"""How far above the committed offset a record may be forwarded. 2 KiB of bits are 2,732 characters; the broker allows
4,096 (`offset.metadata.max.bytes`)."""

_VERSION = "1:"


class UnknownProgressError(ValueError):
    """The metadata was written by something else, or by a later version of this program."""


def encode_done(low: int, done: Collection[int]) -> str:
    """The metadata for a committed offset `low`; each of `done` lies in `range(low, low + SPAN)`.

    Raises:
        ValueError: an offset lies outside of it.
    """
    if not done:
        return ""
    highest = max(done)
    if min(done) < low or highest >= low + SPAN:
        raise ValueError(f"offsets {min(done)} to {highest} do not lie within {SPAN} from {low}")
    bits = bytearray((highest - low) // 8 + 1)
    for offset in done:
        place = offset - low
        bits[place // 8] |= 1 << place % 8
    return _VERSION + base64.b64encode(bits).decode()


def decode_done(low: int, metadata: str | None) -> set[int]:
    """The offsets that were forwarded although they lie above the committed offset `low`.

    Raises:
        UnknownProgressError: the metadata is not of this form.
    """
    if not metadata:
        return set()
    if not metadata.startswith(_VERSION):
        raise UnknownProgressError(f"unknown form {metadata[:8]!r}")
    try:
        bits = base64.b64decode(metadata[len(_VERSION) :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnknownProgressError(str(error)) from error
    if len(bits) * 8 > SPAN:
        raise UnknownProgressError(f"{len(bits)} bytes are too many")
    return {low + 8 * i + bit for i, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1}
