"""When a restore is stuck: not while it reads, however long one partition waits for the others."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from processor.engine.quix_state import SILENT_SECONDS, BatchRecovery

LOOKS = 10 * BatchRecovery.MAX_INVALID_OFFSET_ATTEMPTS


def looked_at(heard_at: float) -> None:
    """A partition without a position was looked at many times; the last record of any partition came at `heard_at`."""
    recovery: Any = BatchRecovery.__new__(BatchRecovery)
    recovery._heard_at = heard_at
    partition: Any = SimpleNamespace(invalid_offset_count=LOOKS, last_valid_position_time=None)
    recovery._check_invalid_offset_threshold(partition, "offset=-1001")


def test_a_partition_may_wait_while_others_are_read() -> None:
    """A million states are read partition by partition, and the last one has no position until its turn comes."""
    looked_at(time.monotonic())


def test_silence_ends_a_restore() -> None:
    """Where nothing comes at all the process ends, to be started again, rather than wait for ever."""
    with pytest.raises(RuntimeError, match="Recovery stuck"):
        looked_at(time.monotonic() - SILENT_SECONDS - 1)
