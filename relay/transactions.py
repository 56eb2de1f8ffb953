"""What users of Kafka's transactions need beside the client: calls that come back, and the end of a predecessor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

MARGIN_SECONDS = 5.0
"""How much longer than its own time-out a call of the client may take before it is given up."""


def bounded(call: Callable[[float], object], seconds: float) -> None:
    """Make a call of the client library that takes a time-out, and come back even if it does not.

    `send_offsets_to_transaction` may never return when the group's coordinator went away meanwhile, whatever time-out
    it was given (librdkafka issues 5456 and 5511; seen after each second restart of a broker under load). The thread
    that hangs is left behind with its client; what the caller makes next is a new client.

    Args:
        call: called with the seconds that it may take, in a thread of its own.
        seconds: these.

    Raises:
        KafkaException: what the call raised; or `_TIMED_OUT`, not retriable with this client, as it did not return.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call(seconds)
        except BaseException as error:
            raised.append(error)

    # The interpreter does not wait for it at its end.
    thread = threading.Thread(target=run, name="transactional call", daemon=True)
    thread.start()
    thread.join(seconds + MARGIN_SECONDS)
    if thread.is_alive():
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"a call of {seconds:.0f} s did not return"))
    if raised:
        raise raised[0]


def end_predecessor(producer: Producer, group: Consumer, place: tuple[str, int], seconds: float) -> None:
    """Take over a transactional id, and abort what its last holder had not committed.

    To take over is enough as a rule. But a group coordinator that was restarted in the middle of a commit may keep a
    position pending for ever whose transaction the log has ended long ago: every question for it is answered "not
    yet", and the partition stands still (seen with Kafka 4.2 killed under load). Only the end of a transaction of the
    same producer that takes part in the group clears that, so there is one here: a position that is aborted at once.

    Args:
        producer: new, with the instance's transactional id.
        group: of the group in whose name the instance commits; no member of it.
        place: a topic and partition that the group reads; no position of it is changed.
        seconds: how long each of the requests may take.

    Raises:
        KafkaException: the cluster cannot be asked, or refuses.
    """
    producer.init_transactions(seconds)
    producer.begin_transaction()
    offsets = [TopicPartition(*place, 0)]
    metadata: Any = group.consumer_group_metadata()
    bounded(lambda limit: producer.send_offsets_to_transaction(offsets, metadata, limit), seconds)
    producer.abort_transaction(seconds)
