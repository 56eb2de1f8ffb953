"""A storm over the engine on Faust in its short form: a fault every three seconds, three instances."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engine_storm import Storm

pytestmark = pytest.mark.timeout(400)


def test_a_storm_over_faust(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """Killed, ended and frozen past a session: each record is counted once, in order."""
    storm = Storm(kafka, topic_prefix, tmp_path)
    with storm.processors(3, engine="faust") as fleet:
        verdict = storm.blow(fleet, "KKTKSKTK", seed=1)
    print(f"faust: {verdict}")
    assert verdict.exact, f"{verdict}\n{storm.logs()}"
    assert fleet.overdue == 0
