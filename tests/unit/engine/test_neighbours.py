"""How long an instance waits for those of another engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from processor.engine import neighbours
from processor.engine.config import ProcessorConfig
from processor.engine.neighbours import MARGIN_SECONDS, Neighbours
from processor.engine.port import EngineError
from schemas.topics import Naming


def test_who_has_stopped_is_waited_for_and_who_runs_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a session and a margin from the first time on; the message says what to do."""
    now = 1_000.0
    monkeypatch.setattr(neighbours.time, "monotonic", lambda: now)
    config = ProcessorConfig(
        kafka={}, naming=Naming(""), ladders={}, state_dir=Path("unused"), session_seconds=10.0, engine="faust"
    )
    others = Neighbours(config)
    others.met()
    now += config.session_seconds + MARGIN_SECONDS
    others.met()
    now += 0.1
    with pytest.raises(EngineError, match="another engine than faust: stop every processor"):
        others.met()
