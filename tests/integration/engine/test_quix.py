"""What only the engine on Kafka can show: open transactions, strange headers, missing topics, its own lag."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from deploy.topics import ensure_topics
from processor.engine.config import ProcessorConfig
from processor.engine.port import EngineError
from processor.engine.service import run
from schemas import records as r
from schemas.dead_letters import PREFIX
from schemas.topics import DEAD_LETTERS, DELIVERY_EVENTS, DUE, NOTIFICATIONS, OUTCOMES, RESOLUTIONS, Naming
from tests.support.engine import LADDERS, KafkaUnderTest, notify, raw
from tests.support.engine_script import count
from tests.support.eventually import eventually
from tests.support.header_names import send_with_header_name
from tests.support.kafka import create_topics, produce, read_all


@pytest.fixture
def processor(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[KafkaUnderTest]:
    """A running processor with the decision that counts."""
    started = KafkaUnderTest(kafka, topic_prefix, tmp_path)
    started.start()
    yield started
    started.close()


def test_an_open_transaction_on_one_input_holds_back_no_other(processor: KafkaUnderTest) -> None:
    """A delayer that died in a transaction delays its own records until that ends, and not the resolutions."""
    delayer = Producer(
        {
            "bootstrap.servers": processor.bootstrap,
            "transactional.id": f"{processor.naming.prefix}delayer",
            "partitioner": "murmur2_random",
        }
    )
    delayer.init_transactions(20)
    delayer.begin_transaction()
    key, value, headers = raw(r.Due(recipient="ada", due_at=5), "d1")
    delayer.produce(processor.naming(DUE), value, key, headers=list(headers.items()))
    assert delayer.flush(10) == 0
    for number in range(1, 4):
        resolve = r.Resolve(recipient="ada", dedup_key="k", resolution="paid")
        processor.send(RESOLUTIONS, [raw(resolve, f"r{number}")])
        processor.written(DELIVERY_EVENTS, number, timeout=20)
    delayer.commit_transaction(10)
    events = processor.written(DELIVERY_EVENTS, 4, timeout=20)
    assert [e.header("ce_type") for e in events] == ["rung.notification.resolved"] * 3 + ["rung.step.deferred"]


def test_a_header_name_that_is_no_text_makes_a_dead_letter(processor: KafkaUnderTest) -> None:
    """The client library cannot read such headers at all; the record is kept without them, once, over a restart."""
    send_with_header_name(processor.bootstrap, processor.naming(OUTCOMES), b"ada", b"value", b"\xff\xfe")
    (letter,) = processor.written(DEAD_LETTERS, 1)
    assert (letter.key, letter.value, letter.header(PREFIX + "reason")) == (b"ada", b"value", "bad_header")
    processor.restart()
    processor.send(NOTIFICATIONS, [raw(notify("ada", "k"), "n1")])
    processor.written(DELIVERY_EVENTS, 1)
    assert len(processor.written(DEAD_LETTERS, 1)) == 1


def test_missing_topics_are_named(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """A cluster without the inputs is refused at the start, with their names; none is created."""
    config = config_for(kafka, topic_prefix, tmp_path)
    with pytest.raises(EngineError, match=rf"{topic_prefix}notifications.*create the catalogue's topics first"):
        run(config, threading.Event(), CollectorRegistry(), decide_with=count)
    topics = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics
    assert not [name for name in topics if name.startswith(topic_prefix)]


def test_inputs_of_different_partitions_are_refused(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """A resolution would miss its notification: the start fails and tells the numbers."""
    naming = Naming(topic_prefix)
    create_topics(kafka, {naming(t): 2 for t in (NOTIFICATIONS, RESOLUTIONS, DUE)} | {naming(OUTCOMES): 3})
    with pytest.raises(EngineError, match="the same number of partitions"):
        run(config_for(kafka, topic_prefix, tmp_path), threading.Event(), CollectorRegistry(), decide_with=count)


def test_it_runs_in_a_thread_and_tells_its_lag(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """`run` needs no main thread, returns when it is told to stop, and its metrics see what Kafka holds."""
    config = config_for(kafka, topic_prefix, tmp_path)
    ensure_topics(dict(config.kafka), config.naming, partitions=2)
    registry, stop = CollectorRegistry(), threading.Event()
    thread = threading.Thread(target=run, args=(config, stop, registry, count), daemon=True)
    thread.start()
    try:
        records = [raw(notify(f"p{i}", "k"), f"n{i}") for i in range(50)]
        produce(kafka, config.naming(NOTIFICATIONS), records)
        read_all(kafka, config.naming(DELIVERY_EVENTS), 50, timeout=30)
        eventually(
            lambda: registry.get_sample_value("rung_processor_events_total", {"type": "NotifyReceived"}) == 50,
            describe="50 events counted",
        )
        eventually(
            lambda: registry.get_sample_value("rung_processor_lag_seconds", {"topic": "notifications"}) == 0,
            describe="no lag",
        )
    finally:
        stop.set()
        thread.join(15)
    assert not thread.is_alive()


def test_the_changelog_is_compacted_and_takes_large_states(processor: KafkaUnderTest) -> None:
    """Its settings: compaction, partitions as the inputs', room for the largest state, bounded age of old states."""
    processor.send(NOTIFICATIONS, [raw(notify("ada", "k", text="x" * 1_000_000), "n1")])
    processor.written(DELIVERY_EVENTS, 1)
    from confluent_kafka.admin import ConfigResource, ResourceType

    admin = AdminClient({"bootstrap.servers": processor.bootstrap})
    topics = admin.list_topics(timeout=10).topics
    (changelog,) = [name for name in topics if name.startswith(f"changelog__{processor.naming.prefix}")]
    assert len(topics[changelog].partitions) == 2
    resource = ConfigResource(ResourceType.TOPIC, changelog)
    settings = admin.describe_configs([resource])[resource].result(10)
    wanted = ("cleanup.policy", "max.message.bytes", "max.compaction.lag.ms")
    assert [settings[name].value for name in wanted] == ["compact", str(8 * 1024 * 1024), str(86_400_000)]


def config_for(kafka: str, prefix: str, folder: Path) -> ProcessorConfig:
    """The settings of a processor in this process."""
    return ProcessorConfig(
        kafka={"bootstrap.servers": kafka}, naming=Naming(prefix), ladders=LADDERS, state_dir=folder / "state"
    )
