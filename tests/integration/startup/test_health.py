"""What real services say on `/healthz` and `/readyz`, and what becomes of one that hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psycopg
import pytest

from deploy.health import STALLED
from deploy.local.kafka import EmbeddedKafka
from deploy.local.ports import free_port
from deploy.topics import ensure_topics
from schemas.topics import DELIVERY_EVENTS, NOTIFICATIONS, Naming
from tests.support.eventually import eventually
from tests.support.kafka import produce
from tests.support.startup import END_SECONDS, Cluster, Launcher, get, says

WAIT = 60.0
STOP_SECONDS = 30

HANGING = """
import threading
from deploy.health import Health
from deploy.service_runner import run_service
from deploy.settings import load

settings = load()
health = Health(settings.stall_seconds)


def run(stop, registry):
    health.beat()
    lock = threading.Lock()
    with lock:
        lock.acquire()


run_service("hanging", settings, run, health=health)
"""

FORGETFUL = """
from deploy.cli import main
from processor.engine.plane import DataPlane


def lose(plane, share):
    plane._config.beat()
    plane._consumer.poll(0.1)
    plane._ran_dry = True
    return ()


DataPlane._arriving = lose
main()
"""
"""A processor that makes its turns, stays in its group and reads on, and does nothing with what it reads."""


def _said(name: str, port: int) -> str:
    return f"{name} ready: {get(port, '/readyz')}"


@pytest.mark.parametrize("service", ["outbox", "delays", "processor", "deliver", "journal", "api"])
def test_a_service_is_ready_when_it_has_its_share(rung: Launcher, cluster: Cluster, service: str) -> None:
    """Beside `/metrics` each says that it is healthy and then that it is ready; SIGTERM ends it with 0."""
    port = free_port()
    process = rung.start(service, RUNG_METRICS_PORT=str(port), RUNG_API_PORT="0")
    eventually(says(port, "/readyz", 200), timeout=WAIT, describe=lambda: f"{get(port, '/readyz')}")
    assert get(port, "/healthz")[0] == 200
    assert "python_info" in get(port, "/metrics")[1]
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=STOP_SECONDS)
    assert process.returncode == 0, said


def test_a_second_process_of_the_same_instance_is_refused(rung: Launcher, cluster: Cluster) -> None:
    """Two replicas with one id would throw each other out of the group for ever; a killed one frees its id at once."""
    port = free_port()
    first = rung.start("delays", RUNG_METRICS_PORT=str(port))
    eventually(says(port, "/readyz", 200), timeout=WAIT)
    code, said = rung.run("delays")
    assert code == 2, said
    assert f"process {first.pid} runs as delays with the instance id 'one' already" in said
    assert get(port, "/readyz")[0] == 200
    first.kill()
    first.communicate()
    rung.start("delays", RUNG_METRICS_PORT=str(port))
    eventually(says(port, "/readyz", 200), timeout=WAIT)


def test_a_hanging_thread_ends_the_process(tmp_path: Path) -> None:
    """The limit passes without a turn: the process says where it hangs, and ends with a code of its own."""
    environment = {**os.environ, "RUNG_STALL_SECONDS": "2", "RUNG_METRICS_PORT": "0", "RUNG_INSTANCE_ID": "one"}
    done = subprocess.run(
        [sys.executable, "-c", HANGING], env=environment, capture_output=True, text=True, timeout=END_SECONDS
    )
    assert done.returncode == STALLED, done.stderr
    assert '"service_stalled"' in done.stderr
    assert "<string>:15 run" in done.stderr


def test_a_committed_position_that_stands_still_ends_the_process(rung: Launcher, cluster: Cluster) -> None:
    """Its loop turns, its group sees it and its client reads on: what counts is what was committed."""
    port = free_port()
    process = rung.start(
        "processor", program=("-c", FORGETFUL), RUNG_METRICS_PORT=str(port), RUNG_ENGINE="faust", RUNG_STALL_SECONDS="4"
    )
    eventually(says(port, "/readyz", 200), timeout=WAIT)

    def ended_while_more_comes() -> bool:
        produce(cluster.kafka, cluster.naming(NOTIFICATIONS), [("ada", b"{}")])
        return process.poll() is not None

    eventually(ended_while_more_comes, timeout=WAIT)
    said, _ = process.communicate(timeout=END_SECONDS)
    assert process.returncode == STALLED, said
    assert "stands still at offset 0 for" in said


def test_a_service_that_hangs_in_the_database_says_so_and_ends(rung: Launcher, cluster: Cluster, database: str) -> None:
    """Somebody holds a lock that the journal needs, and PostgreSQL answers: first `/healthz` tells it, then the process
    ends; the next one takes up the work when the lock is gone."""
    port = free_port()
    process = rung.start("journal", RUNG_METRICS_PORT=str(port), RUNG_STALL_SECONDS="12")
    eventually(says(port, "/readyz", 200), timeout=WAIT)
    with psycopg.connect(database) as blocker:
        blocker.execute("LOCK TABLE rung.journal_offset IN ACCESS EXCLUSIVE MODE")
        produce(cluster.kafka, cluster.naming(DELIVERY_EVENTS), [("ada", b"{}")])
        eventually(says(port, "/healthz", 503, "its loop has made no turn for"), timeout=WAIT)
        assert process.poll() is None
        said, _ = process.communicate(timeout=END_SECONDS)
    assert process.returncode == STALLED, said
    assert "service_stalled" in said
    rung.start("journal", RUNG_METRICS_PORT=str(port))
    eventually(says(port, "/readyz", 200), timeout=WAIT)


def test_kafka_being_away_is_waited_out(tmp_path: Path, database: str, unique: str) -> None:
    """A broker that is frozen for longer than the limit: services are alive, healthy and not ready, at their start as
    well; and ready again when it goes on."""
    with EmbeddedKafka(tmp_path / "kafka", heap="256m") as broker:
        prefix = f"{unique}."
        ensure_topics({"bootstrap.servers": broker.bootstrap_servers}, Naming(prefix), partitions=1)
        rung = Launcher(
            tmp_path,
            {
                "RUNG_KAFKA": broker.bootstrap_servers,
                "RUNG_DATABASE_URL": database,
                "RUNG_TOPIC_PREFIX": prefix,
                "RUNG_STALL_SECONDS": "12",
                "RUNG_INSTANCE_ID": "one",
            },
        )
        names = ("outbox", "delays", "journal")
        ports = {name: free_port() for name in (*names, "late")}
        processes = {name: rung.start(name, RUNG_METRICS_PORT=str(ports[name])) for name in names}
        pid = broker.pid
        assert pid is not None
        try:
            for name in names:
                eventually(says(ports[name], "/readyz", 200), timeout=WAIT)
            os.kill(pid, signal.SIGSTOP)
            late = rung.start("delays", RUNG_METRICS_PORT=str(ports["late"]), RUNG_INSTANCE_ID="late")
            for name in names:
                eventually(says(ports[name], "/readyz", 503, "Kafka: no answer"), timeout=WAIT)
            late_waits = says(ports["late"], "/readyz", 503, "Kafka: no answer")
            eventually(late_waits, timeout=WAIT)
            with pytest.raises(subprocess.TimeoutExpired):
                # Longer than the limit.
                processes["outbox"].wait(15)
            for name in names:
                assert processes[name].poll() is None, name
                assert get(ports[name], "/healthz")[0] == 200
            assert late.poll() is None
            os.kill(pid, signal.SIGCONT)
            for name, port in ports.items():
                eventually(says(port, "/readyz", 200), timeout=WAIT, describe=partial(_said, name, port))
        finally:
            os.kill(pid, signal.SIGCONT)
            rung.end_all()
