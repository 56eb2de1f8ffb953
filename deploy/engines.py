"""Whether the processor's engine can be had, before anything of it is started."""

from __future__ import annotations

from deploy.errors import CommandError
from deploy.settings import Settings, SettingsError
from processor.engine import faust_fit
from processor.engine.port import EngineError


def check(settings: Settings) -> None:
    """Refuse an engine that is not installed, or not in a release that fits, and a store that it does not have.

    Raises:
        CommandError: one of these; the message says what to do.
    """
    if settings.engine != "faust":
        if settings.state_store == "memory":
            raise SettingsError("RUNG_STATE_STORE: memory is a store of the engine faust; quix has rocksdb alone")
        return
    try:
        faust_fit.check()
    except EngineError as error:
        raise CommandError(str(error)) from None
