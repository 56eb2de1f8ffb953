"""Ids that are derived, so that two writers who never met give the same thing the same id."""

import hashlib
from uuid import UUID

NOTIFICATION_NAMESPACE = UUID("9a3c1f0e-5d7b-4c62-a8f1-d2b36e90475c")
_VARIANT = {digit: f"{int(digit, 16) & 0x3 | 0x8:x}" for digit in "0123456789abcdef"}
"""The digit that holds the variant has its two bits in place of what the hash has there (RFC 9562, section 4.1)."""


def notification_id(recipient: str, dedup_key: str) -> UUID:
    """The id of a notification whose caller gave none; the SQL function of the same name returns the same.

    RFC 9562 version 8: the first 128 bits of SHA-256 over the namespace and the name (its appendix B.2), because
    PostgreSQL has SHA-256 built in and SHA-1, which version 5 asks for, only as an extension. The name starts with the
    length of the recipient in bytes, so ("a", "bc") and ("ab", "c") differ. Nothing is normalised.
    """
    name = f"{len(recipient.encode())}:{recipient}{dedup_key}".encode()
    digest = bytearray(hashlib.sha256(NOTIFICATION_NAMESPACE.bytes + name).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return UUID(bytes=bytes(digest))


def uuid5_text(namespace: UUID, name: str) -> str:
    """The text of the name-based id of RFC 9562, version 5: what `str(uuid.uuid5(namespace, name))` gives."""
    return NameSpace(namespace).text(name.encode())


class NameSpace:
    """A name space that ids are derived in for each record: they are made as text at once, in a quarter of the time of
    `str(uuid.uuid5(namespace, name))`, and are the same."""

    __slots__ = ("_begun",)

    def __init__(self, namespace: UUID) -> None:
        self._begun = hashlib.sha1(namespace.bytes, usedforsecurity=False)

    def text(self, name: bytes) -> str:
        """The id of a name."""
        digest = self._begun.copy()
        digest.update(name)
        text = digest.hexdigest()
        return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"
