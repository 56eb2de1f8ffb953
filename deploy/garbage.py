"""How often a service looks for garbage that refers to itself: seldom, for most of what it drops does not."""

from __future__ import annotations

import gc

YOUNG = 50_000
"""How many more objects there must be before the newest are looked through. Python's own 700 make a service that holds
thousands of records look through them again and again: of a drain of the outbox it was two fifths of the time."""


def seldom() -> None:
    """Look seldom from now on, and never again at what is there already, such as the modules."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)
