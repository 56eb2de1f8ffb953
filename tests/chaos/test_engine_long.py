"""The engine on Faust in its long form: sweeps, storms, a soak; and plain Faust under the same storm."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from deploy.local.kafka import EmbeddedKafka
from tests.support.engine_storm import Storm

pytestmark = pytest.mark.timeout(1_200)
SWEEPS = {"killed": "K" * 6, "ended": "T" * 6, "mixed": "KTSKTTKSK"}


@pytest.mark.parametrize("faults", SWEEPS)
@pytest.mark.parametrize("store", ["rocksdb", "memory"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_sweep(kafka: str, topic_prefix: str, tmp_path: Path, workers: int, store: str, faults: str) -> None:
    """One, two and three instances, both stores, killed, ended in order, and frozen past a session among these."""
    storm = Storm(kafka, topic_prefix, tmp_path)
    with storm.processors(workers, engine="faust", store=store) as fleet:
        verdict = storm.blow(fleet, SWEEPS[faults], every=4.0, seed=workers)
    print(f"faust, {store} × {workers}, {faults}: {verdict}")
    assert verdict.exact, f"{verdict}\n{storm.logs()}"
    assert fleet.overdue == 0


@pytest.mark.parametrize("engine", ["quix", "faust"])
def test_a_storm_over_sixteen_partitions(kafka: str, topic_prefix: str, tmp_path: Path, engine: str) -> None:
    """The same storm over both engines, with more partitions than a rebalance can pass over in silence."""
    storm = Storm(kafka, topic_prefix, tmp_path, partitions=16)
    with storm.processors(3, engine=engine) as fleet:
        verdict = storm.blow(fleet, "KTKSKTKKSTKK", seed=5)
    assert verdict.exact, f"{verdict}\n{storm.logs()}"


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_plain_faust_under_the_storm(kafka: str, topic_prefix: str, tmp_path: Path, guarantee: str) -> None:
    """What the adapter is for: Faust as it is loses records, or stands still, in a storm that the engine comes through.

    The same storm, and the same time to catch up; up to three of them, since not each hits it.
    """
    verdicts = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        storm = Storm(kafka, f"{topic_prefix}{seed}.", folder)
        with storm.plain(3, guarantee=guarantee) as fleet:
            verdicts.append(storm.blow(fleet, "KKTKSKTK", seed=1 + seed))
        if verdicts[-1].lost:
            break
    print(f"plain Faust, {guarantee}: {verdicts}")
    assert verdicts[-1].lost > 0, f"plain Faust came through: {verdicts}; is the adapter still needed?"


def test_broker_killed(topic_prefix: str, tmp_path: Path) -> None:
    """Kafka dies three times between other faults and comes back; instances that gave up are started again."""
    with EmbeddedKafka(tmp_path / "kafka") as broker:
        folder = tmp_path / "fleet"
        folder.mkdir()

        def restart() -> None:
            broker.kill()
            broker.start()

        storm = Storm(broker.bootstrap_servers, topic_prefix, folder)
        with storm.processors(2, engine="faust") as fleet:
            verdict = storm.blow(fleet, "KBTBKBK", every=6, seed=1, limit=180, others={"B": restart})
    assert verdict.exact, f"{verdict}\n{storm.logs()}"


def test_state_wiped(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """An instance loses its disk four times, between kills; the changelog gives all of it back."""
    storm = Storm(kafka, topic_prefix, tmp_path)
    with storm.processors(2, engine="faust") as fleet:

        def wipe() -> None:
            fleet.running[0].kill()
            fleet.running[0].wait()
            shutil.rmtree(tmp_path / "state" / "0")

        verdict = storm.blow(fleet, "KWKWTWKW", seed=2, others={"W": wipe})
    assert verdict.exact, f"{verdict}\n{storm.logs()}"


def test_soak(kafka: str, topic_prefix: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Ten minutes of random faults, some seconds apart."""
    every = 5.0
    seconds = float(request.config.getoption("--chaos-seconds"))
    faults = "".join(random.Random(7).choices("KTS", (6, 3, 1), k=round(seconds / every)))
    storm = Storm(kafka, topic_prefix, tmp_path)
    with storm.processors(3, engine="faust") as fleet:
        verdict = storm.blow(fleet, faults, every=every, seed=7, limit=180)
    assert verdict.exact, f"{verdict}\n{storm.logs()}"
    assert fleet.overdue == 0
