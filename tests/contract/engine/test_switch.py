"""A system goes from one engine to another: state, positions and topics are the same."""

from __future__ import annotations

import pytest

from schemas.topics import DELIVERY_EVENTS
from tests.contract.engine.test_crash import check_exactly_once, send
from tests.support.engine import StartOnKafka


@pytest.mark.parametrize(("first", "second"), [("quix", "faust"), ("faust", "quix")])
@pytest.mark.timeout(240)
def test_another_engine_goes_on(start_on_kafka: StartOnKafka, first: str, second: str) -> None:
    """One stops, the other starts at once, and then the first again, with what it still has on its disk."""
    processor = start_on_kafka(engine=first)
    sent = 0
    for round_no, engine in enumerate((second, first, "")):
        sent += send(processor, (round_no * 5, round_no * 5 + 5))
        processor.written(DELIVERY_EVENTS, sent)
        assert processor.stop() == 0, processor.log[-3000:]
        if engine:
            processor.start(engine=engine)
    check_exactly_once(processor.written(DELIVERY_EVENTS, sent), sent)
