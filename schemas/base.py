"""The base of every record: frozen, keyword-only, tolerant of fields that it does not know."""

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that travels. Fields that equal their default are left out; unknown fields are ignored when read."""
