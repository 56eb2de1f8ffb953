"""The collector of a service: what is dropped goes, also where it refers to itself, only later."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from deploy import garbage


class Ring:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def restored() -> Iterator[None]:
    """Python's own ways, afterwards."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("restored")
def test_rings_go_after_a_while() -> None:
    """Not at once, and not never: the newest are looked through when there are many more of them."""
    garbage.seldom()
    dropped = weakref.ref(Ring())
    held: list[list[int]] = [[] for _ in range(garbage.YOUNG // 2)]
    assert dropped() is not None
    held += [[] for _ in range(garbage.YOUNG)]
    assert dropped() is None
    assert len(held) > garbage.YOUNG
