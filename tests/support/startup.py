"""Services as `rung` starts them, for tests of what they refuse and of what they say about their health."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.probes import quiet_admin, quiet_consumer
from deploy.settings import Settings
from schemas.topics import Naming
from tests.support.eventually import eventually

REQUEST_SECONDS = 15
END_SECONDS = 60


@dataclass
class Launcher:
    """Runs `rung` commands against given servers; what is still running is killed by `end_all`."""

    folder: Path
    environment: Mapping[str, str]
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(
        self, *command: str, program: Sequence[str] = ("-m", "deploy.cli"), **variables: str
    ) -> subprocess.Popen[str]:
        """Start a command; its two streams come together from `communicate`.

        Args:
            command: its name and arguments.
            program: what Python runs, which may be `rung` with a fault built in.
            variables: of its environment.
        """
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RUNG_")}
        environment |= {"XDG_STATE_HOME": str(self.folder), "RUNG_STATE_DIR": str(self.folder / "state")}
        process = subprocess.Popen(
            [sys.executable, *program, *command],
            env={**environment, "RUNG_METRICS_PORT": "0", **self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.running.append(process)
        return process

    def run(self, *command: str, **variables: str) -> tuple[int, str]:
        """Run a command to its end: its exit code and all that it said."""
        process = self.start(*command, **variables)
        said, _ = process.communicate(timeout=END_SECONDS)
        return process.returncode, said

    def end_all(self) -> None:
        """Kill what still runs."""
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.communicate()


def settings(kafka: str, prefix: str, database_url: str = "postgresql://nowhere") -> Settings:
    """The settings that a service on these servers would have."""
    return Settings(kafka=kafka, topic_prefix=prefix, database_url=database_url, instance_id="test")  # type: ignore[arg-type]


@functools.cache
def admin(kafka: str) -> AdminClient:
    """The one client for a broker."""
    return quiet_admin({"bootstrap.servers": kafka}, REQUEST_SECONDS)


@dataclass(frozen=True)
class Cluster:
    """Changes to a cluster, made at once."""

    kafka: str
    naming: Naming

    @property
    def admin(self) -> AdminClient:
        """A client that lives on: one that is collected while an answer is due never gives it."""
        return admin(self.kafka)

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Let a group that nobody is in stand at an offset; a broker that has just started has no coordinator yet."""
        eventually(lambda: self._commit(group, TopicPartition(topic, partition, offset)), timeout=REQUEST_SECONDS)

    def _commit(self, group: str, place: TopicPartition) -> bool:
        """Whether it was done. The request succeeds as a whole when it was refused for each of its partitions."""
        asked = self.admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [place])], request_timeout=REQUEST_SECONDS
        )
        (done,) = asked[group].result(REQUEST_SECONDS).topic_partitions
        if done.error is not None and done.error.code() not in (
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.NOT_COORDINATOR,
        ):
            raise KafkaException(done.error)
        return done.error is None

    def committed(self, group: str, topic: str, partition: int) -> int:
        """Where a group stands."""
        consumer = quiet_consumer({"bootstrap.servers": self.kafka}, group, REQUEST_SECONDS)
        try:
            return int(consumer.committed([TopicPartition(topic, partition)], timeout=REQUEST_SECONDS)[0].offset)
        finally:
            consumer.close()

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete records as retention does."""
        futures = self.admin.delete_records([TopicPartition(topic, partition, offset)], request_timeout=REQUEST_SECONDS)
        for future in futures.values():
            future.result(REQUEST_SECONDS)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and return when it is gone."""
        self.admin.delete_topics([topic], request_timeout=REQUEST_SECONDS)[topic].result(REQUEST_SECONDS)
        eventually(lambda: topic not in self.admin.list_topics(timeout=5).topics)


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body of one of a service's pages; 0 if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def says(port: int, path: str, status: int, text: str = "") -> Callable[[], bool]:
    """Whether a page answers with this status, and this text in it."""

    def look() -> bool:
        found, body = get(port, path)
        return found == status and text in body

    return look
