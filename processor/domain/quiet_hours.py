"""Quiet hours: a moment inside them moves to the first moment after them, by the recipient's own wall clock.

**The daylight-saving policy.** A local time `L` happens at the first instant at which the wall clock has reached `L`
(shows `L` or later). From this one sentence follows:

- in a gap (the clock jumps over `L`), `L` happens at the first valid instant after the gap. A day that a zone skips
  altogether is a gap like any other;
- in a fold (the clock shows `L` twice), the first one counts. Quiet hours that begin in a fold last through its
  repetition, and quiet hours that end in a fold have ended when its repetition begins.

Quiet hours are the spans between two such instants, `from` included and `until` excluded, one span for each day of the
calendar. So every moment is in or out of them without regard to which others were asked for, a moment never becomes
earlier, and shifting twice is shifting once.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from schemas.profile import Profile, QuietHours

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_MILLISECOND = timedelta(milliseconds=1)
_HH_MM = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_NAME_LIMIT = 100
"""Longer than any zone's name; longer texts are not even looked up."""
_NOT_IANA = re.compile(r"(posix|right)/.*|posixrules|localtime")
"""Files that a machine may have beside the zones: their meaning differs from machine to machine, or counts leap
seconds."""


def shift(at_ms: int, quiet: QuietHours, time_zone: str | None) -> int:
    """The first moment from `at_ms` on (milliseconds since the epoch) that is not inside quiet hours.

    Without a time zone the hours are UTC's. Total: what `validate_profile` refuses, hours or zone, restricts as UTC's
    hours or not at all, and a moment beyond the calendar's years (1 to 9999) stays as it is.
    """
    start, end = _time(quiet.from_), _time(quiet.until)
    if start is None or end is None or start == end:
        return at_ms
    zone = _zone(time_zone or "UTC") or UTC
    try:
        moment = _EPOCH + timedelta(milliseconds=at_ms)
        free = _first_free(moment, start, end, zone)
    except OverflowError:
        return at_ms
    return at_ms if free == moment else (free - _EPOCH) // _MILLISECOND


def validate_profile(profile: Profile) -> str | None:
    """What is wrong with a profile's times, for a person and without its content; None if nothing is."""
    if profile.time_zone is not None and _zone(profile.time_zone) is None:
        return "time_zone is not an IANA time zone that is known here; write one such as Europe/Berlin or UTC"
    quiet = profile.quiet_hours
    if quiet is None:
        return None
    for field, text in (("from", quiet.from_), ("until", quiet.until)):
        if _time(text) is None:
            return f"quiet_hours.{field} is not a time of day; write HH:MM from 00:00 to 23:59"
    if quiet.from_ == quiet.until:
        return "quiet_hours.from and quiet_hours.until are the same time; leave quiet_hours out for none"
    return None


def _first_free(moment: datetime, start: time, end: time, zone: tzinfo) -> datetime:
    """The end of the spans that hold `moment`, one after the other: after a skipped day the next one begins where the
    last one ended."""
    while True:
        until = next((e for s, e in _spans(moment, start, end, zone) if s <= moment < e), None)
        if until is None:
            return moment
        moment = until


def _spans(moment: datetime, start: time, end: time, zone: tzinfo) -> Iterator[tuple[datetime, datetime]]:
    """The spans that could hold a moment. The calendar's date at it is known up to a day where a zone has skipped or
    repeated one, and a span reaches into the day after its own."""
    today = moment.astimezone(zone).date()
    over_midnight = _DAY if end < start else timedelta()
    for days in range(-2, 2):
        day = today + days * _DAY
        yield _happens(day, start, zone), _happens(day + over_midnight, end, zone)


@lru_cache(maxsize=8192)
def _happens(day: date, clock: time, zone: tzinfo) -> datetime:
    """The first instant (in UTC) at which a zone's wall clock has reached this local time."""
    local = datetime.combine(day, clock, tzinfo=zone)
    # fold=0 reads the local time with the offset before a transition: the first of two in a fold. In a gap it lies
    # after the gap by as much as the local time lies inside it, and fold=1 before the gap.
    first = local.astimezone(UTC)
    if _wall(first, zone) == local.replace(tzinfo=None):
        return first
    return _end_of_gap(local.replace(fold=1).astimezone(UTC), first, zone)


def _end_of_gap(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The instant of the one change of offset between two instants, found by halving; offsets change on the second."""
    offset = before.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // 2 // _SECOND * _SECOND
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after


def _wall(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _time(text: str) -> time | None:
    match = _HH_MM.fullmatch(text)
    return time(int(match[1]), int(match[2])) if match else None


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo | None:
    if len(name) > _NAME_LIMIT or _NOT_IANA.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        # Not found, a path, a folder's name, a NUL: the library says each in another way.
        return None
