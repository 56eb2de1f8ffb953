"""An engine that cannot be had is refused before anything is started."""

from __future__ import annotations

from typing import Any

import pytest

from deploy import engines
from deploy.errors import CommandError
from deploy.settings import Settings
from processor.engine import faust_fit


def settings(**options: Any) -> Settings:
    """A service's."""
    return Settings(kafka="here:1", database_url="postgresql://nowhere", **options)


@pytest.mark.parametrize(
    "options", [{}, {"engine": "quix"}, {"engine": "faust"}, {"engine": "faust", "state_store": "memory"}]
)
def test_what_there_is(options: dict[str, Any]) -> None:
    """Both engines, and both stores of the one."""
    engines.check(settings(**options))


def test_quix_has_no_memory_store() -> None:
    """The setting would be passed over in silence."""
    with pytest.raises(CommandError, match="RUNG_STATE_STORE: memory is a store of the engine faust"):
        engines.check(settings(state_store="memory"))


def test_a_faust_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so for the engine that needs it, and is nothing to the other."""
    monkeypatch.setattr(faust_fit, "version", lambda _: "0.1")
    engines.check(settings(engine="quix"))
    with pytest.raises(CommandError, match=r"found faust-streaming 0\.1 instead of"):
        engines.check(settings(engine="faust"))
