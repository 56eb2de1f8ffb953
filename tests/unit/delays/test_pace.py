"""How soon a transaction follows another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from relay.delays.config import DelaysConfig
from relay.delays.metrics import DelaysMetrics
from relay.delays.records import hold
from relay.delays.session import Session
from relay.delays.transactions import AbortedError, Transactions
from relay.delays.window import Window
from schemas.topics import TIERS

PAUSE_SECONDS = 60.0
PLACE = (TIERS[0].topic, 0)


@pytest.fixture
def session() -> Iterator[Session]:
    """A session without a cluster, with four records that are due; two fill a transaction."""
    config = DelaysConfig(
        {"bootstrap.servers": "127.0.0.1:1"}, "a", batch_size=2, transaction_interval_seconds=PAUSE_SECONDS
    )
    made = Session(config, threading.Event(), DelaysMetrics(CollectorRegistry()))
    window = made._windows[PLACE] = Window(0, set(), config.read_ahead, config.read_ahead_bytes)
    for offset in range(4):
        assert window.expects(offset)
        window.hold(hold(TIERS[0], (0, offset), b"k", b"{}", [("due_at", b"5")], 5, 10))
    yield made
    made.close()


def pause_after(session: Session) -> float:
    """Let the session forward once; in how many seconds it may do so again."""
    began = time.monotonic()
    assert session._forward() == {PLACE}
    return session._next_transaction - began


def test_a_full_transaction_is_followed_at_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """More is due: nothing is collected by a pause. The last one, which is not full, is followed by one."""
    monkeypatch.setattr(Transactions, "commit", lambda *_: None)
    session._windows[PLACE].due(10, 1)
    assert pause_after(session) < PAUSE_SECONDS / 2
    assert pause_after(session) >= PAUSE_SECONDS


def test_an_aborted_transaction_is_made_again_after_a_pause(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """However full it was: what Kafka refuses must not be asked of it in a circle."""

    def abort(*_: object) -> None:
        raise AbortedError("NOT_ENOUGH_REPLICAS", ())

    monkeypatch.setattr(Transactions, "commit", abort)
    assert pause_after(session) >= PAUSE_SECONDS
