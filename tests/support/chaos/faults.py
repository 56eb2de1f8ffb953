"""The faults: each is put into a running system, and waits until the system has got over it."""

from __future__ import annotations

import random
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Sequence
from functools import partial

import psycopg
from confluent_kafka import KafkaException, Producer
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from deploy.crash import CATALOGUE
from schemas.topics import DELIVERIES, DUE
from tests.support.chaos.load import notify, now_ms
from tests.support.chaos.report import Fault
from tests.support.chaos.system import System
from tests.support.eventually import eventually
from tests.support.kafka import PRODUCER_SETTINGS

REACH_SECONDS = 120.0
"""How long a service may take to pass an armed point under load."""
SETTLE_SECONDS = 180.0
LEASES = ("outbox.lease.before", "outbox.lease.after")


def sweep(system: System) -> None:
    """Every crash point once, each process from one to its next: the points of a service are dealt to its replicas."""
    waves: dict[str, list[str]] = {}
    for service, points in CATALOGUE.items():
        names = [name for name in system.fleet.metrics if name.startswith(f"{service}-")]
        for number, point in enumerate(points):
            waves.setdefault(names[number % len(names)], []).append(point)
    before = len(system.fleet.deaths)
    for name, dealt in waves.items():
        system.fleet.chain(name, dealt)
    eventually(lambda: not system.fleet.chained, SETTLE_SECONDS, 0.1, describe=lambda: f"{system.fleet.chained}")
    last = system.fleet.deaths[-1].at
    for death in system.fleet.deaths[before:]:
        assert death.code == -signal.SIGKILL, f"{death}: see {system.fleet.logs}"
        # The kill that begins a chain is one from outside. They overlap, so the recovery counts from the last one.
        fault = system.note(death.armed or "kill of a process", death.at, last)
        _recovered(system, death.name, fault)
    passed = {death.armed for death in system.fleet.deaths[before:]}
    wanted = {point for points in CATALOGUE.values() for point in points}
    assert wanted <= passed, f"not passed: {sorted(wanted - passed)}"


def _recovered(system: System, name: str, fault: Fault) -> None:
    """Wait for what the service of this process does: the journal's is not seen at the providers."""
    if name.startswith("journal"):
        system.journalled(fault, SETTLE_SECONDS)
    else:
        system.recover(fault, SETTLE_SECONDS)


def crash_at(system: System, point: str, passing: int) -> None:
    """One process dies at one point, and is started again at once."""
    service = next(name for name, points in CATALOGUE.items() if point in points)
    name = f"{service}-1"
    system.fleet.stop(name)
    system.fleet.arm(name, f"{point}:{1 if point in LEASES else passing}")
    before = len(system.fleet.deaths)
    system.fleet.start(name)

    def died() -> bool:
        return any(death.armed.startswith(point) for death in system.fleet.deaths[before:])

    eventually(died, REACH_SECONDS, 0.05, describe=f"{name} passes {point}:{passing}; see {system.fleet.logs}")
    (death,) = [death for death in system.fleet.deaths[before:] if death.armed.startswith(point)]
    _recovered(system, name, system.note(point, death.at))
    _settled(system)


def random_kills(system: System, seconds: float, seed: int) -> None:
    """One process after the other is killed, whichever it is."""
    draw = random.Random(seed)
    ends = time.monotonic() + seconds
    pause = threading.Event()
    faults = []
    while time.monotonic() < ends:
        name = draw.choice([name for name in system.fleet.metrics if system.fleet.running(name)])
        faults.append(system.note("random kill", system.fleet.kill(name)))
        # The moment is drawn: what is done then must not be in step with anything.
        pause.wait(draw.uniform(2.0, 8.0))
    for fault in faults:
        system.recover(fault, SETTLE_SECONDS)
    _settled(system)


def rolling_restart(system: System) -> None:
    """Every process is asked to end, and started again, one after the other."""
    for name in list(system.fleet.metrics):
        at = now_ms()
        system.fleet.stop(name)
        fault = system.note("SIGTERM and start", at, now_ms())
        system.fleet.start(name)
        _recovered(system, name, fault)
    _settled(system)


def scale(system: System, service: str) -> None:
    """1, 2, 3 and 1 of a service: its partitions move each time."""
    one, two, three = (f"{service}-{number}" for number in (1, 2, 3))
    if three not in system.fleet.metrics:
        system.fleet.add(three)

    def less(*names: str) -> None:
        at = now_ms()
        for name in names:
            system.fleet.stop(name)
        # Static members: their partitions wait for them for the time of a session.
        _and_wait(f"{service}: to one", at)

    def more(name: str) -> None:
        at = now_ms()
        system.fleet.start(name)
        _and_wait(f"{service}: one more", at)
        _settled(system, len(_running(system, service)), service)

    def _and_wait(name: str, at: int) -> None:
        system.recover(system.note(name, at), SETTLE_SECONDS)

    less(two)
    _settled(system, 1, service)
    more(two)
    more(three)
    less(two, three)
    _settled(system, 1, service)
    more(two)
    assert one in _running(system, service)


def zombie(system: System, name: str) -> None:
    """A process is frozen for longer than its session, its partitions move, and it wakes up."""
    group = "rung-deliver" if name.startswith("deliver") else "rung-processor"
    fault = system.note(f"{name.rpartition('-')[0]}: SIGSTOP past its session, SIGCONT", now_ms())
    system.fleet.signal(name, signal.SIGSTOP)
    try:
        eventually(lambda: members(system, group) == 1, 90.0, 0.2, describe=f"{name} is out of its group")
        system.recover(fault, SETTLE_SECONDS)
    finally:
        system.fleet.signal(name, signal.SIGCONT)
    system.recover(system.note(f"{name.rpartition('-')[0]}: back from SIGSTOP", now_ms()), SETTLE_SECONDS)
    _settled(system)


def kafka_killed(system: System) -> None:
    """The broker is killed and started again."""
    at = now_ms()
    system.kafka.kill()
    system.kafka.start()
    system.recover(system.note("Kafka killed and started", at, now_ms()), SETTLE_SECONDS)
    _settled(system)


def postgres_killed(system: System) -> None:
    """The database is killed and started again."""
    at = now_ms()
    system.postgres.kill()
    system.postgres.start()
    system.recover(system.note("PostgreSQL killed and started", at, now_ms()), SETTLE_SECONDS)


def connections_cut(system: System, what: str) -> None:
    """All connections of the services to a server are reset."""
    proxy = system.kafka_proxy if what == "Kafka" else system.postgres_proxy
    fault = system.note(f"connections to {what} cut", now_ms())
    assert proxy.cut() > 0, "nothing was connected"
    system.recover(fault, SETTLE_SECONDS)


def connections_torn(system: System, what: str) -> None:
    """A service is cut off in the middle of something that it sends, and all others with it."""
    proxy = system.kafka_proxy if what == "Kafka" else system.postgres_proxy
    # Larger than a heartbeat or a fetch: it holds records, or a statement with its rows.
    proxy.tear(1_000 if what == "Kafka" else 400, REACH_SECONDS)
    system.recover(system.note(f"connections to {what} cut in a batch", now_ms()), SETTLE_SECONDS)


def state_wiped(system: System, name: str = "processor-1") -> None:
    """A processor ends, its disk is lost, and it starts again."""
    at = now_ms()
    system.fleet.stop(name)
    shutil.rmtree(system.fleet.state_dir(name))
    fault = system.note("state directory wiped", at, now_ms())
    system.fleet.start(name)
    system.recover(fault, SETTLE_SECONDS)
    _settled(system)


def providers_away(system: System, seconds: float) -> None:
    """Every provider refuses every call for a while; what is asked for meanwhile waits behind it."""
    at = now_ms()
    with system.providers_down():
        threading.Event().wait(seconds)
    fault = system.note(f"providers away for {seconds:.0f} s", at, now_ms())
    system.recover(fault, SETTLE_SECONDS)
    waiting = [ask for ask in system.load.asks if at <= ask.asked_at <= fault.since and ask.act_after is None]

    def accepted() -> bool:
        system.sinks.read()
        return all(any(call.accepted for call in system.sinks.of(ask)) for ask in waiting)

    eventually(accepted, SETTLE_SECONDS, 0.2, describe="the backlog is delivered")
    fault.recovered_ms = now_ms() - fault.since


def transaction_open(system: System) -> None:
    """A producer dies with an open transaction in `due` and `deliveries`: readers wait until Kafka aborts it."""
    producer = Producer(
        {
            **system.client,
            **PRODUCER_SETTINGS,
            "transactional.id": f"stuck-{uuid.uuid4().hex[:8]}",
            "transaction.timeout.ms": 10_000,
        }
    )
    # Right after a restart of the broker the coordinator may still be reading its log.
    asking = Retrying(retry=retry_if_exception(_passes), stop=stop_after_delay(60), wait=wait_fixed(0.2), reraise=True)
    asking(producer.init_transactions, 30)
    producer.begin_transaction()
    for topic in (DUE, DELIVERIES):
        producer.produce(topic.name, key=b"nobody", value=b"{}")
    producer.flush(30)
    system.recover(system.note("a producer stuck in an open transaction", now_ms()), SETTLE_SECONDS)
    # Kafka has fenced it by now; ending it must not wait for anything.
    del producer


def _passes(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and bool(error.args[0].retriable())


def row_open(system: System) -> None:
    """A business transaction stays open over its request: others are published past it, and it is when it commits."""
    with psycopg.connect(system.database_url) as connection:
        ask = system.load.ask("person-000", "welcome")
        notify(connection, ask)
        system.recover(system.note("a business transaction stays open", now_ms()), SETTLE_SECONDS)
        connection.commit()
        ask.committed_at = now_ms()
        system.load.asks.append(ask)
    key = (ask.notification_id, 0)

    def called() -> bool:
        system.sinks.read()
        return key in system.sinks.calls

    eventually(called, SETTLE_SECONDS, 0.1, describe="the row that committed late is delivered")


def members(system: System, group: str) -> int:
    """How many members a consumer group has; 0 while it is not stable."""
    found = system.admin.describe_consumer_groups([group], request_timeout=10)[group].result(10)
    return len(found.members) if found.state.name == "STABLE" else 0


def _running(system: System, service: str) -> Sequence[str]:
    return [name for name in system.fleet.metrics if name.startswith(f"{service}-") and system.fleet.running(name)]


GROUPS = {"processor": "rung-processor", "deliver": "rung-deliver", "delays": "rung-delays", "journal": "rung-journal"}


def _settled(system: System, count: int | None = None, service: str | None = None) -> None:
    """Return when the groups have the members that run, so that the next fault meets a whole system."""
    for name, group in GROUPS.items():
        if service in (None, name):
            wanted = count or len(_running(system, name))
            eventually(
                partial(_has, system, group, wanted), SETTLE_SECONDS, 0.2, describe=f"{group} has {wanted} members"
            )


def _has(system: System, group: str, wanted: int) -> bool:
    return members(system, group) == wanted
