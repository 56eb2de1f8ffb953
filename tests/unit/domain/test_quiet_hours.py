"""Quiet hours around every kind of clock change, against named cases and against a slow reading of the wall clock."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from processor.domain.quiet_hours import shift, validate_profile
from schemas.profile import Profile, QuietHours

MINUTE_MS = 60_000
DAY_MS = 1_440 * MINUTE_MS


def ms(text: str) -> int:
    """An ISO time with an offset as milliseconds since the epoch."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def local(at_ms: int, zone: str) -> datetime:
    """What the wall clock of a zone shows, and when the clock shows it twice, in `fold`, whether it is the second."""
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone))


def hours(span: str) -> QuietHours:
    """Quiet hours written as `22:00-08:00`."""
    start, _, end = span.partition("-")
    return QuietHours(from_=start, until=end)


@pytest.mark.parametrize(
    ("zone", "span", "at", "expected"),
    [
        # An ordinary night: outside, the borders, inside before and after midnight.
        ("Europe/Berlin", "22:00-08:00", "2026-01-15T21:59:59.999+01:00", "2026-01-15T21:59:59.999+01:00"),
        ("Europe/Berlin", "22:00-08:00", "2026-01-15T22:00:00+01:00", "2026-01-16T08:00:00+01:00"),
        ("Europe/Berlin", "22:00-08:00", "2026-01-16T07:59:59.999+01:00", "2026-01-16T08:00:00+01:00"),
        ("Europe/Berlin", "22:00-08:00", "2026-01-16T08:00:00+01:00", "2026-01-16T08:00:00+01:00"),
        # By day, not over midnight.
        ("Asia/Kolkata", "12:30-14:00", "2026-01-15T13:00:00+05:30", "2026-01-15T14:00:00+05:30"),
        ("Asia/Kolkata", "12:30-14:00", "2026-01-15T23:00:00+05:30", "2026-01-15T23:00:00+05:30"),
        # No zone is UTC.
        (None, "22:00-08:00", "2026-01-15T23:00:00+00:00", "2026-01-16T08:00:00+00:00"),
        # The nights of the clock changes are an hour shorter and an hour longer, and end at eight by the wall clock.
        ("Europe/Berlin", "22:00-08:00", "2026-03-28T23:00:00+01:00", "2026-03-29T08:00:00+02:00"),
        ("Europe/Berlin", "22:00-08:00", "2026-10-24T23:00:00+02:00", "2026-10-25T08:00:00+01:00"),
        # `until` in a gap (02:00 to 03:00 does not exist): the first valid instant after it.
        ("Europe/Berlin", "22:00-02:30", "2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00"),
        # `from` in a gap: they begin at its end.
        ("Europe/Berlin", "02:30-08:00", "2026-03-29T01:59:00+01:00", "2026-03-29T01:59:00+01:00"),
        ("Europe/Berlin", "02:30-08:00", "2026-03-29T03:00:00+02:00", "2026-03-29T08:00:00+02:00"),
        # Wholly inside the gap: none on that day.
        ("Europe/Berlin", "02:10-02:50", "2026-03-29T03:00:00+02:00", "2026-03-29T03:00:00+02:00"),
        ("Europe/Berlin", "02:10-02:50", "2026-03-29T01:59:59+01:00", "2026-03-29T01:59:59+01:00"),
        # `until` in a fold (02:00 to 03:00 comes twice): the first one ends them, and the second is not quiet.
        ("Europe/Berlin", "22:00-02:30", "2026-10-25T02:15:00+02:00", "2026-10-25T02:30:00+02:00"),
        ("Europe/Berlin", "22:00-02:30", "2026-10-25T02:15:00+01:00", "2026-10-25T02:15:00+01:00"),
        # `from` in a fold: the first one begins them, and they last through the repetition.
        ("Europe/Berlin", "02:30-08:00", "2026-10-25T02:15:00+02:00", "2026-10-25T02:15:00+02:00"),
        ("Europe/Berlin", "02:30-08:00", "2026-10-25T02:30:00+02:00", "2026-10-25T08:00:00+01:00"),
        ("Europe/Berlin", "02:30-08:00", "2026-10-25T02:15:00+01:00", "2026-10-25T08:00:00+01:00"),
        # Both in a fold: once, the first time.
        ("Europe/Berlin", "02:15-02:45", "2026-10-25T02:20:00+02:00", "2026-10-25T02:45:00+02:00"),
        ("Europe/Berlin", "02:15-02:45", "2026-10-25T02:20:00+01:00", "2026-10-25T02:20:00+01:00"),
        # `until` at the end of the fold: that time comes once, after the repetition.
        ("Europe/Berlin", "22:00-03:00", "2026-10-25T02:59:00+02:00", "2026-10-25T03:00:00+01:00"),
        # A gap at midnight: Beirut and Cairo go from 24:00 to 01:00.
        ("Asia/Beirut", "22:00-00:30", "2026-03-28T23:00:00+02:00", "2026-03-29T01:00:00+03:00"),
        ("Asia/Beirut", "00:00-08:00", "2026-03-29T01:00:00+03:00", "2026-03-29T08:00:00+03:00"),
        ("Asia/Beirut", "00:00-08:00", "2026-03-28T23:59:59+02:00", "2026-03-28T23:59:59+02:00"),
        ("Africa/Cairo", "23:00-00:00", "2026-04-23T23:30:00+02:00", "2026-04-24T01:00:00+03:00"),
        # All day but twenty minutes that fall into that gap: straight on to the next day's twenty.
        ("Africa/Cairo", "00:30-00:10", "2026-04-23T12:00:00+02:00", "2026-04-25T00:10:00+03:00"),
        # A fold at midnight: Cairo goes from 24:00 back to 23:00 of the same day.
        ("Africa/Cairo", "22:00-00:00", "2026-10-29T23:30:00+03:00", "2026-10-30T00:00:00+02:00"),
        ("Africa/Cairo", "22:00-23:30", "2026-10-29T23:10:00+03:00", "2026-10-29T23:30:00+03:00"),
        ("Africa/Cairo", "22:00-23:30", "2026-10-29T23:10:00+02:00", "2026-10-29T23:10:00+02:00"),
        # Half an hour of daylight saving: Lord Howe goes from 02:00 to 02:30, and back from 02:00 to 01:30.
        ("Australia/Lord_Howe", "22:00-02:15", "2026-10-04T01:00:00+10:30", "2026-10-04T02:30:00+11:00"),
        ("Australia/Lord_Howe", "22:00-01:45", "2026-04-05T01:40:00+11:00", "2026-04-05T01:45:00+11:00"),
        ("Australia/Lord_Howe", "22:00-01:45", "2026-04-05T01:40:00+10:30", "2026-04-05T01:40:00+10:30"),
        ("Australia/Lord_Howe", "22:00-08:00", "2026-04-05T01:40:00+10:30", "2026-04-05T08:00:00+10:30"),
        # A skipped day: after the 29th of December 2011 came the 31st in Apia. The night that would have ended on the
        # 30th runs on into the one that would have begun on it.
        ("Pacific/Apia", "22:00-08:00", "2011-12-29T23:00:00-10:00", "2011-12-31T08:00:00+14:00"),
        ("Pacific/Apia", "12:00-14:00", "2011-12-29T23:00:00-10:00", "2011-12-29T23:00:00-10:00"),
        ("Pacific/Apia", "12:00-14:00", "2011-12-31T12:00:00+14:00", "2011-12-31T14:00:00+14:00"),
    ],
)
def test_named_cases(zone: str | None, span: str, at: str, expected: str) -> None:
    """The stated policy, one case for each kind of clock change and each place of a border."""
    assert shift(ms(at), hours(span), zone) == ms(expected)


ZONES = (
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/St_Johns",
    "America/Havana",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Asuncion",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Tehran",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Antarctica/Troll",
    "America/Caracas",
    "Europe/Istanbul",
)


def changes(zone: str) -> tuple[int, ...]:
    """The moments at which a zone's offset changes, 1990 to 2029, found without the code under test."""

    def offset(at: int) -> timedelta | None:
        return local(at, zone).utcoffset()

    found = []
    for start in range(ms("1990-01-01T00:00+00:00"), ms("2030-01-01T00:00+00:00"), 5 * DAY_MS):
        low, high = start, start + 5 * DAY_MS
        if offset(low) != offset(high):
            while high - low > 1000:
                middle = (low + high) // 2000 * 1000
                low, high = (middle, high) if offset(middle) == offset(low) else (low, middle)
            found.append(high)
    return tuple(found)


# Once for all examples: to look for them takes some hundred milliseconds.
CHANGES = {zone: changes(zone) for zone in ZONES}


def oracle(at_ms: int, quiet: QuietHours, zone: str) -> int:
    """Read the wall clock minute by minute from three days before, keep the latest time that it has shown, and call a
    moment quiet when the time of day of that latest time lies in the hours."""
    start, end = quiet.from_, quiet.until
    minute = at_ms // MINUTE_MS * MINUTE_MS - 3 * DAY_MS
    latest = local(minute, zone).replace(tzinfo=None, fold=0)
    while True:
        latest = max(latest, local(minute, zone).replace(tzinfo=None, fold=0))
        clock = f"{latest:%H:%M}"
        inside = start <= clock < end if start < end else clock >= start or clock < end
        if minute + MINUTE_MS > at_ms and not inside:
            return max(at_ms, minute)
        minute += MINUTE_MS


@st.composite
def moments(draw: st.DrawFn) -> tuple[int, str]:
    """A zone and a moment in it, most often within two days of a change of its offset."""
    zone = draw(st.sampled_from(ZONES))
    near = CHANGES[zone]
    if near and draw(st.integers(0, 9)):
        at = draw(st.sampled_from(near)) + draw(st.integers(-2 * DAY_MS, 2 * DAY_MS))
    else:
        at = draw(st.integers(ms("1990-01-01T00:00+00:00"), ms("2029-01-01T00:00+00:00")))
    return at, zone


clocks = st.one_of(
    st.sampled_from(
        ["00:00", "00:30", "01:30", "01:59", "02:00", "02:30", "03:00", "22:00", "23:00", "23:30", "23:59"]
    ),
    st.times().map(lambda clock: f"{clock:%H:%M}"),
)
spans = st.tuples(clocks, clocks).filter(lambda pair: pair[0] != pair[1]).map(lambda pair: hours("-".join(pair)))


@given(moments(), spans)
@example((ms("2011-12-29T23:00:00-10:00"), "Pacific/Apia"), hours("22:00-08:00"))
@example((ms("2011-12-29T23:00:00-10:00"), "Pacific/Apia"), hours("00:01-00:00"))
def test_it_is_what_the_wall_clock_says(moment: tuple[int, str], quiet: QuietHours) -> None:
    """In any zone, near any change of offset and for any hours, the answer is that of a minute-by-minute reading."""
    at, zone = moment
    assert shift(at, quiet, zone) == oracle(at, quiet, zone)


@given(moments(), spans)
def test_never_earlier_never_far_and_once_is_enough(moment: tuple[int, str], quiet: QuietHours) -> None:
    """A moment never becomes earlier, waits at most the quiet hours of a skipped day, and is not moved again."""
    at, zone = moment
    moved = shift(at, quiet, zone)
    assert at <= moved <= at + 3 * DAY_MS
    assert shift(moved, quiet, zone) == moved


@given(moments(), spans, st.integers(0, 2 * DAY_MS))
def test_order_is_kept(moment: tuple[int, str], quiet: QuietHours, later: int) -> None:
    """Of two moments the later one never ends up before the earlier one, so a ladder's steps keep their order."""
    at, zone = moment
    assert shift(at, quiet, zone) <= shift(at + later, quiet, zone)


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=6) | clocks,
    st.text(max_size=6) | clocks,
    st.none() | st.text() | st.sampled_from(ZONES),
)
@example(ms("9999-12-31T23:30:00+00:00"), "22:00", "08:00", "UTC")
@example(-62_135_596_800_000, "22:00", "08:00", "Asia/Tokyo")
@example(2**63 - 1, "22:00", "08:00", "UTC")
@example(0, "22:00", "08:00", "Nowhere/Else")
def test_it_is_total(at: int, start: str, end: str, zone: str | None) -> None:
    """Whatever stands in a state, even what no profile may hold, a moment comes back and is not earlier."""
    assert shift(at, QuietHours(from_=start, until=end), zone) >= at


def test_an_unknown_zone_is_read_as_utc() -> None:
    """A zone that this machine does not know (any more) does not lose the quiet hours."""
    at, quiet = ms("2026-01-15T23:00:00+00:00"), hours("22:00-08:00")
    assert shift(at, quiet, "Mars/Olympus") == ms("2026-01-16T08:00:00+00:00")


@pytest.mark.parametrize("span", ["22:00-22:00", "22-08", "22:00-24:00", "-"])
def test_hours_that_are_none_restrict_nothing(span: str) -> None:
    """Empty or malformed hours leave a moment alone: a message late at night is better than one that never leaves."""
    at = ms("2026-01-15T23:00:00+00:00")
    assert shift(at, hours(span), None) == at


@pytest.mark.parametrize(
    "profile",
    [
        Profile(),
        Profile(time_zone="Europe/Berlin"),
        Profile(time_zone="UTC", quiet_hours=hours("22:00-08:00")),
        Profile(quiet_hours=hours("00:00-23:59")),
    ],
)
def test_a_sound_profile_passes(profile: Profile) -> None:
    """Zones of the IANA data, hours in either order, and nothing at all are fine."""
    assert validate_profile(profile) is None


@pytest.mark.parametrize(
    "name",
    ["", "Berlin", "Europe", "europe/berlin ", "../etc/passwd", "/etc/localtime", "localtime", "posix/UTC", "right/UTC",
     "a\0b", "\ud800", "x" * 101, "UTC\n"],
)  # fmt: skip
def test_an_unknown_time_zone_is_told(name: str) -> None:
    """A name that is no zone, a path or a folder of them is refused, without repeating it."""
    told = validate_profile(Profile(time_zone=name))
    assert told is not None
    assert told.startswith("time_zone is not an IANA time zone")


@pytest.mark.parametrize(
    ("span", "told"),
    [
        ("22:00-22:00", "quiet_hours.from and quiet_hours.until are the same time"),
        ("24:00-08:00", "quiet_hours.from is not a time of day; write HH:MM from 00:00 to 23:59"),
        ("22:00-8:00", "quiet_hours.until is not a time of day"),
        ("22:00-08:60", "quiet_hours.until is not a time of day"),
        ("22:00-08:00\n", "quiet_hours.until is not a time of day"),
        ("٢٢:٠٠-08:00", "quiet_hours.from is not a time of day"),
    ],
)
def test_malformed_hours_are_told(span: str, told: str) -> None:
    """Each malformed border is named, and how to write it."""
    message = validate_profile(Profile(quiet_hours=hours(span)))
    assert message is not None
    assert message.startswith(told)


@given(st.none() | st.text(), st.text(), st.text())
def test_a_profile_that_passes_is_one_that_shifts(zone: str | None, start: str, end: str) -> None:
    """No text makes the check raise."""
    profile = Profile(time_zone=zone, quiet_hours=QuietHours(from_=start, until=end))
    assert validate_profile(profile) is None or isinstance(validate_profile(profile), str)


def test_the_zones_are_known_here() -> None:
    """The cases above rest on the zones' data, which comes with the tzdata package where a system has none."""
    assert all(local(0, zone) and validate_profile(Profile(time_zone=zone)) is None for zone in ZONES)
    assert datetime.fromtimestamp(0, UTC).year == 1970
