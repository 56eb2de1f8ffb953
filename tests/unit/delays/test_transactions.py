"""Calls of the client library that do not keep their time-outs."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from relay import transactions
from relay.transactions import bounded


def test_a_call_that_never_returns_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes instead is an error that no retry with the same client follows."""
    monkeypatch.setattr(transactions, "MARGIN_SECONDS", 0.05)
    released = threading.Event()
    began = time.monotonic()
    with pytest.raises(KafkaException) as raised:
        bounded(lambda _: released.wait(60), 0.05)
    assert time.monotonic() - began < 10
    released.set()
    error = raised.value.args[0]
    assert error.name() == "_TIMED_OUT"
    assert not error.retriable()


def test_a_call_gets_its_seconds_and_its_error_is_raised_here() -> None:
    """As if it had been made in this thread."""
    given: list[float] = []
    bounded(given.append, 2.5)
    assert given == [2.5]

    def fail(_: float) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE))

    with pytest.raises(KafkaException) as raised:
        bounded(fail, 1.0)
    assert raised.value.args[0].code() == KafkaError._STATE
