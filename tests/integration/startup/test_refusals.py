"""What would lose data is refused at the start: one sentence, an exit code, and nothing written."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from pathlib import Path

import psycopg
import pytest

from deploy.needs import needs
from deploy.preflight import look_at_cluster, look_at_kinds
from deploy.refusals import RefusedError
from deploy.settings import DEFAULT_CONFIG_DIR
from deploy.topics import TopicsError, ensure_topics
from processor.engine.changelog import CHANGELOG_CONFIG
from schemas.topics import DELAYS, DELIVERIES, DELIVERY_EVENTS, DUE, NOTIFICATIONS, OUTCOMES, RESOLUTIONS, Topic
from tests.support.kafka import Topic as Spec
from tests.support.kafka import create_topics, produce
from tests.support.startup import Cluster, Launcher, admin, settings

SERVICES = ("outbox", "delays", "processor", "deliver", "journal", "api")
REFUSED = 2


def look(cluster: Cluster, service: str, database: str = "postgresql://nowhere") -> None:
    """What a service looks at before it runs, without a process."""
    need = needs(service, settings(cluster.kafka, cluster.naming.prefix, database))
    look_at_cluster(need, admin(need.kafka["bootstrap.servers"]))


def changelog(cluster: Cluster) -> str:
    """The name of the processor's changelog."""
    name = needs("processor", settings(cluster.kafka, cluster.naming.prefix)).changelog
    assert name is not None
    return name


def fill(cluster: Cluster, topic: Topic, records: int = 6) -> None:
    """Write records to the first partition of a topic."""
    produce(cluster.kafka, cluster.naming(topic), [("ada", b"{}")] * records, partition=0)


def test_missing_topics_are_named(rung: Launcher, kafka: str, topic_prefix: str) -> None:
    """A service does not wait in silence for topics that nobody makes, and makes none itself."""
    code, said = rung.run("outbox")
    assert code == REFUSED, said
    names = f"{topic_prefix}notifications, {topic_prefix}resolutions"
    assert f"topics are missing: {names}; create them with `rung topics create`" in said
    for service in ("delays", "processor", "deliver", "api"):
        need = needs(service, settings(kafka, topic_prefix))
        with pytest.raises(RefusedError, match="topics are missing"):
            look_at_cluster(need, admin(need.kafka["bootstrap.servers"]))
    assert not [name for name in admin(kafka).list_topics(timeout=10).topics if name.startswith(topic_prefix)]


def test_a_sound_cluster_is_taken(cluster: Cluster, database: str) -> None:
    """What `rung topics create` makes is refused by no service."""
    for service in SERVICES:
        look(cluster, service, database)


@pytest.mark.parametrize(("service", "odd"), [("processor", OUTCOMES), ("deliver", RESOLUTIONS), ("delays", DUE)])
def test_topics_with_different_numbers_of_partitions(cluster: Cluster, service: str, odd: Topic) -> None:
    """Facts about one recipient would not meet; topic creation refuses them too."""
    cluster.delete_topic(cluster.naming(odd))
    create_topics(cluster.kafka, {cluster.naming(odd): 3})
    with pytest.raises(RefusedError, match=rf"3 partitions: {cluster.naming(odd)}"):
        look(cluster, service)
    with pytest.raises(TopicsError, match="has 3 partitions, and the settings say 2"):
        ensure_topics({"bootstrap.servers": cluster.kafka}, cluster.naming, partitions=2)


def test_another_number_of_partitions_than_the_state_has(cluster: Cluster) -> None:
    """The changelog tells from how many partitions the state was built, also where all the inputs agree."""
    create_topics(cluster.kafka, {changelog(cluster): Spec(4, CHANGELOG_CONFIG)})
    with pytest.raises(RefusedError, match="state was built with 4 partitions"):
        look(cluster, "processor")
    with pytest.raises(TopicsError, match="set RUNG_PARTITIONS to 4"):
        ensure_topics({"bootstrap.servers": cluster.kafka}, cluster.naming, partitions=2)


def test_a_changelog_that_is_gone(cluster: Cluster, rung: Launcher) -> None:
    """With offsets committed there was a state: the processor does not begin with an empty one until it is told to."""
    fill(cluster, NOTIFICATIONS)
    cluster.commit(f"{cluster.naming.prefix}rung-processor", cluster.naming(NOTIFICATIONS), 0, 3)
    code, said = rung.run("processor")
    assert code == REFUSED, said
    assert "the processor's state is gone" in said
    assert changelog(cluster) not in cluster.admin.list_topics(timeout=10).topics
    code, said = rung.run("accept-loss", "--yes")
    assert code == 0, said
    look(cluster, "processor")


def test_a_changelog_that_is_deleted_by_age(cluster: Cluster) -> None:
    """The state of people who are quiet for long would go; the command that mends it is in the sentence."""
    create_topics(cluster.kafka, {changelog(cluster): Spec(2, {"cleanup.policy": "delete"})})
    with pytest.raises(RefusedError, match=r"kafka-configs.sh --alter --topic .* --add-config cleanup.policy=compact"):
        look(cluster, "processor")


@pytest.mark.parametrize(
    ("service", "topic"), [("processor", NOTIFICATIONS), ("delays", DELAYS[3]), ("deliver", DELIVERIES)]
)
def test_records_that_were_deleted_before_they_were_read(
    cluster: Cluster, rung: Launcher, service: str, topic: Topic
) -> None:
    """The position is below the first record: refused with both numbers, moved by the one command, and then taken."""
    name, group = cluster.naming(topic), f"{cluster.naming.prefix}rung-{service}"
    create_topics(cluster.kafka, {changelog(cluster): Spec(2, CHANGELOG_CONFIG)})
    fill(cluster, topic)
    cluster.commit(group, name, 0, 2)
    look(cluster, service)
    cluster.delete_before(name, 0, 5)
    sentence = rf"{name}\[0\]: stands at 2, and Kafka begins at 5.*rung accept-loss --yes"
    with pytest.raises(RefusedError, match=sentence):
        look(cluster, service)
    code, said = rung.run("accept-loss")
    assert (code, cluster.committed(group, name, 0)) == (1, 2), said
    assert "at most 3 records are gone" in said
    code, said = rung.run("accept-loss", "--yes")
    assert (code, cluster.committed(group, name, 0)) == (0, 5), said
    look(cluster, service)
    assert rung.run("accept-loss")[0] == 0


def test_events_that_were_deleted_before_the_journal_read_them(cluster: Cluster, rung: Launcher, database: str) -> None:
    """The journal's own positions, which are in the database, are held against the topic in the same way."""
    name = cluster.naming(DELIVERY_EVENTS)
    fill(cluster, DELIVERY_EVENTS)
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO rung.journal_offset VALUES (%s, 0, 2), (%s, 1, 0)", (name, name))
    cluster.delete_before(name, 0, 5)
    code, said = rung.run("journal")
    assert code == REFUSED, said
    assert "stands at 2, and Kafka begins at 5" in said
    assert rung.run("accept-loss", "--yes")[0] == 0
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT partition, next_offset FROM rung.journal_offset ORDER BY 1").fetchall()
    assert rows == [(0, 5), (1, 0)]
    look(cluster, "journal", database)


@pytest.mark.parametrize("service", ["outbox", "journal", "api", "audit"])
def test_a_database_of_another_version(cluster: Cluster, rung: Launcher, database: str, service: str) -> None:
    """Older or newer than the code: each service with tables says which migration it is about."""
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO rung.schema_migration VALUES (9999, 'later', '')")
    code, said = rung.run(service, RUNG_API_PORT="0")
    assert (code, "the database is newer than this program (it has 9999_later)" in said) == (REFUSED, True), said
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM rung.schema_migration WHERE version IN (50, 9999)")
    code, said = rung.run(service, RUNG_API_PORT="0")
    assert (code, "the database lacks 0050_journal: run `rung migrate`" in said) == (REFUSED, True), said


def accept(database: str, kind: str, channel: str) -> uuid.UUID:
    """A notification that the journal knows as open, whose one step is an hour away."""
    identity, now = uuid.uuid4(), time.time_ns() // 1_000_000
    steps = f'[{{"step_no": 0, "channel": "{channel}", "due_at": {now + 3_600_000}}}]'
    with psycopg.connect(database) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS rung.delivery_event_rest PARTITION OF rung.delivery_event DEFAULT"
        )
        connection.execute(
            "INSERT INTO rung.delivery_event (at, event_id, type, notification_id, recipient, kind, dedup_key, reason,"
            " steps, expires_at, kafka_partition, kafka_offset)"
            " VALUES (%s, %s, 'rung.notification.accepted', %s, 'ada', %s, %s, 'accepted', %s::jsonb, %s, 0, 0)",
            (now, uuid.uuid4(), identity, kind, str(identity), steps, now + 7_200_000),
        )
    return identity


def test_a_kind_that_open_notifications_have_is_not_dropped(rung: Launcher, database: str) -> None:
    """`rung ladders apply` names the kind and how many are open, and changes nothing; `--force` drops it, once and for
    all. A kind that nobody waits for is dropped without a word."""
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO rung.kind (name) VALUES ('old'), ('unused')")
    accept(database, "old", "email")
    accept(database, "old", "email")
    code, said = rung.run("ladders", "apply")
    assert code == REFUSED, said
    assert "ladders.toml has no old (2 open) any more" in said
    assert "unused" not in said
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM rung.kind").fetchone() == (3,)
    assert rung.run("ladders", "apply", "--force")[0] == 0
    assert rung.run("ladders", "apply")[0] == 0
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM rung.kind WHERE name = 'old'").fetchone() == (0,)


@pytest.mark.parametrize("service", ["processor", "deliver"])
def test_a_service_with_a_ladder_file_that_drops_a_kind(
    rung: Launcher, cluster: Cluster, database: str, service: str
) -> None:
    """It refuses until the kind was given up; without the journal nobody can tell, and it starts."""
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO rung.kind (name) VALUES ('old'), ('unused')")
    accept(database, "old", "email")
    code, said = rung.run(service)
    assert (code, "ladders.toml has no old (1 open) any more" in said) == (REFUSED, True), said
    assert rung.run("ladders", "apply", "--force")[0] == 0
    look_at_kinds(database, frozenset({"welcome"}))
    look_at_kinds("postgresql://127.0.0.1:1/nowhere", frozenset())


def test_a_channel_that_steps_to_come_have_is_not_dropped(rung: Launcher, database: str, tmp_path: Path) -> None:
    """A running ladder brings its own channels; one that is done with, or expired, does not matter."""
    done = accept(database, "welcome", "carrier-pigeon")
    waiting = accept(database, "welcome", "smoke-signal")
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO rung.delivery_event (at, event_id, type, notification_id, recipient, kind, dedup_key, step_no,"
            " reason, kafka_partition, kafka_offset)"
            " SELECT at + 1, gen_random_uuid(), 'rung.step.sent', notification_id, recipient, kind, dedup_key, 0,"
            " 'sent', 0, 1 FROM rung.delivery_event WHERE notification_id = %s",
            (done,),
        )
    code, said = rung.run("ladders", "apply")
    assert (code, "channels.toml has no smoke-signal (1 open) any more" in said) == (REFUSED, True), said
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE rung.delivery_event SET expires_at = 1 WHERE notification_id = %s", (waiting,))
    assert rung.run("ladders", "apply")[0] == 0


def test_the_system_as_a_whole_refuses_too(rung: Launcher, cluster: Cluster, database: str, tmp_path: Path) -> None:
    """`rung up` with a ladder file that drops a kind starts no service."""
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO rung.kind (name) VALUES ('old')")
    accept(database, "old", "email")
    folder = shutil.copytree(DEFAULT_CONFIG_DIR, tmp_path / "config")
    code, said = rung.run("up", "--config", os.fspath(folder), "--state", os.fspath(tmp_path / "up"))
    assert (code, "ladders.toml has no old (1 open) any more" in said) == (REFUSED, True), said
    assert "starting services" not in said
