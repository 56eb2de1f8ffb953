"""How property tests run: without a limit per example, since a busy machine is no fault of the code."""

from hypothesis import settings

settings.register_profile("rung", deadline=None)
settings.load_profile("rung")
