"""How old a local copy of a state may be: Kafka forgets after a while that a key was removed.

A removed state is a record without a value in the changelog, and compaction drops that record when
`delete.retention.ms` has passed. A copy from before, brought up to date from where it ends, would keep the state: an
old notification's key would be taken for known, and what is asked for under it would never go out. So a copy says when
it was last written, and one that is too old is read back from the beginning. A partition that nothing has come to for
so long pays for it with a restore that was not needed.
"""

import time

import structlog

WRITTEN_AT = b"__rung_written_at__"
"""The key of the stamp; no state's key, which ends with a suffix."""
OLDEST_SECONDS = 12 * 60 * 60.0
"""Half of the changelog's `delete.retention.ms`."""

_log = structlog.get_logger("rung.processor")


def stamp() -> bytes:
    """What a copy says that is written now: seconds since the epoch."""
    return str(int(time.time())).encode()


def is_too_old(partition: int, found: bytes | None) -> bool:
    """Whether the copy of a partition with this stamp has to go; one without a stamp, or from the future, has to."""
    age = None if found is None else time.time() - int(found)
    too_old = age is None or abs(age) > OLDEST_SECONDS
    if too_old:
        _log.warning("old_copy_dropped", partition=partition, seconds=age and round(age))
    return too_old
