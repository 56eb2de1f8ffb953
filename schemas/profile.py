"""A recipient's profile: where, when and about what a person may be told."""

from schemas.base import Record


class QuietHours(Record, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A daily span of local wall-clock time in which nothing is sent. `from_` after `until` means over midnight."""

    from_: str
    """Start, `HH:MM`, local time, included."""
    until: str
    """End, `HH:MM`, local time, excluded."""


class Profile(Record, frozen=True, kw_only=True):
    """All parts are optional; a missing part means no restriction (and, for addresses, no way to reach the person)."""

    addresses: dict[str, str] = {}
    """Channel name to address on it."""
    time_zone: str | None = None
    """IANA name; quiet hours without one are read as UTC."""
    locale: str | None = None
    """BCP 47 tag; picks the template's language."""
    quiet_hours: QuietHours | None = None
    preferences: dict[str, dict[str, bool]] = {}
    """Kind to channel to false, where the person has switched that channel off for that kind."""
    consent: dict[str, bool] = {}
    """Kind to false, where the person has withdrawn consent to that kind."""


class DeadContact(Record, frozen=True, kw_only=True):
    """A permanent fact about an address: the provider refused it. It ends when the address changes."""

    address_hash: str
    reason: str
    at: int
