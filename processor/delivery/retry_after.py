"""When a provider says to come back: the Retry-After header (RFC 9110, section 10.2.3) and its common mistakes."""

import re
from datetime import UTC
from email.utils import parsedate_to_datetime

LIMIT_MS = 24 * 3_600_000
"""A longer wait is cut to a day: it is a mistake or an attack, and notifications do not live much longer."""

_SECONDS = re.compile(r"[0-9]{1,18}(\.[0-9]{0,18})?")


def parse_retry_after(value: str | None, now_ms: int) -> int | None:
    """Milliseconds to wait from `now_ms`, rounded up; None if the header is absent or means nothing.

    A whole number or a fraction counts seconds; an HTTP date is a moment (one in the past is a wait of 0).
    """
    text = (value or "").strip()
    if _SECONDS.fullmatch(text):
        seconds, _, fraction = text.partition(".")
        thousandths = (fraction + "000")[:3]
        up = any(digit != "0" for digit in fraction[3:])
        return min(int(seconds) * 1000 + int(thousandths) + up, LIMIT_MS)
    try:
        moment = parsedate_to_datetime(text)
        # RFC 9110: an HTTP date is in GMT, whether it says so or not.
        at_ms = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(at_ms - now_ms, 0), LIMIT_MS)
