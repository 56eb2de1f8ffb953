"""A partition's local copy: one contract over Faust's stores, and a transaction's changes on top of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import faust
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quixstreams.state.metadata import METADATA_CF_NAME

from processor.engine import copies
from processor.engine.changelog import changelog_key
from processor.engine.copies import WRITTEN_AT
from processor.engine.faust_stores import partition_of
from processor.engine.partitions import OpenPartition, PartitionStore
from processor.engine.port import EngineError
from processor.engine.quix_state import RecipientsPartition, RecipientsStore

Open = Callable[[int], PartitionStore]
KILLED = """
import os, sys
from pathlib import Path
from processor.engine.faust_stores import partition_of
from tests.unit.engine.test_partitions import table

store = partition_of(table("rocksdb://", Path(sys.argv[1])), 1)
store.apply({b"a": b"1"}, 41)
os._exit(0)
"""


def table(url: str, folder: Path) -> Any:
    """A table that nothing is done with but its store."""
    app = faust.App("stores", store=url, datadir=folder, topic_partitions=2, web_enabled=False)
    return app.Table("recipients", partitions=2, key_type=bytes, value_type=bytes)


@pytest.fixture(params=["rocksdb", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens partitions of one store, each again and again."""
    made = table(f"{request.param}://", tmp_path)
    return lambda partition: partition_of(made, partition)


def test_what_is_applied_is_there(opened: Open) -> None:
    """Values are written and removed, and the other partition has none of it."""
    store, other = opened(0), opened(1)
    store.apply({b"a": b"1", b"b": b"2"}, 7)
    store.apply({b"a": None, b"b": b"3"}, 9)
    assert (store.get(b"a"), store.get(b"b"), store.get(b"c")) == (None, b"3", None)
    other.reset()
    assert store.get(b"b") == b"3"


def test_reset_forgets_one_partition(opened: Open) -> None:
    """Everything of it, its place in the changelog too, and nothing of the other."""
    store, other = opened(0), opened(1)
    store.apply({b"a": b"1"}, 7)
    other.apply({b"b": b"2"}, 3)
    store.reset()
    assert (store.get(b"a"), store.offset()) == (None, None)
    assert other.get(b"b") == b"2"
    store.apply({b"a": b"4"}, 8)
    assert store.get(b"a") == b"4"


def test_a_copy_says_how_far_it_reaches_or_is_empty(opened: Open) -> None:
    """What a share finds is a copy up to an offset, or nothing at all: never values of which nobody knows the age."""
    store = opened(0)
    store.apply({b"a": b"1"}, 7)
    again = opened(0)
    assert (again.get(b"a"), again.offset()) in ((b"1", 7), (None, None))


def test_the_disk_outlives_the_process(tmp_path: Path) -> None:
    """State and place were written as one and are found as one, however the process ended."""
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=True)
    again = partition_of(table("rocksdb://", tmp_path), 1)
    assert (again.get(b"a"), again.offset()) == (b"1", 41)


def quix(folder: Path) -> Any:
    """A partition of the other engine's store, where it left it."""
    return RecipientsStore("recipients", None, str(folder)).create_new_partition(0)


def states(store: Any) -> tuple[bytes | None, int | None]:
    """What it has of one recipient, and how far it reaches."""
    if isinstance(store, RecipientsPartition):
        found = store.begin().read(b"ada"), store.get_changelog_offset()
        store.close()
        return found
    return OpenPartition(store).read(b"ada"), store.offset()


@pytest.mark.parametrize(
    ("hours", "stays"), [(0, True), (11.9, True), (12.1, False), (-11.9, True), (-12.1, False), (24 * 365, False)]
)
@pytest.mark.parametrize("engine", ["quix", "faust"])
def test_a_copy_that_is_too_old_is_dropped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str, hours: float, stays: bool
) -> None:
    """Kafka may have forgotten what was removed since; a clock that was wrong then or is now makes no difference."""
    key = changelog_key(b"ada")
    if engine == "quix":
        store = quix(tmp_path)
        store.write_all({key: b"1"}, 41)
        store.close()
        reopened = partial(quix, tmp_path)
    else:
        made = table("rocksdb://", tmp_path)
        partition_of(made, 0).apply({key: b"1"}, 41)
        reopened = partial(partition_of, made, 0)
    then = time.time()
    monkeypatch.setattr(copies.time, "time", lambda: then + hours * 3600)
    assert states(reopened()) == ((b"1", 41) if stays else (None, None))


@pytest.mark.parametrize("engine", ["quix", "faust"])
def test_a_copy_without_an_age_is_dropped(tmp_path: Path, engine: str) -> None:
    """As releases before this one have left it."""
    key = changelog_key(b"ada")
    if engine == "quix":
        store = quix(tmp_path)
        store.write_all({key: b"1"}, 41)
        store.get_or_create_column_family(METADATA_CF_NAME).delete(WRITTEN_AT)
        store.close()
        assert states(quix(tmp_path)) == (None, None)
    else:
        made = table("rocksdb://", tmp_path)
        copy: Any = partition_of(made, 0)
        copy.apply({key: b"1"}, 41)
        copy._db.delete(WRITTEN_AT)
        assert states(partition_of(made, 0)) == (None, None)


def test_another_store_of_faust_is_refused(tmp_path: Path) -> None:
    """There is no such way into it."""

    class Elsewhere:
        data = "aerospike"

    with pytest.raises(EngineError, match="not aerospike"):
        partition_of(Elsewhere(), 0)  # type: ignore[arg-type]


KEYS = st.sampled_from([b"a", b"b", b"c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), KEYS, st.one_of(st.none(), st.binary(min_size=1, max_size=3))),
        st.tuples(st.just("commit"), st.none(), st.none()),
    )
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> PartitionStore:
    """One store for all examples; each forgets what the one before has left."""
    return partition_of(table("memory://", tmp_path_factory.mktemp("store")), 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_transaction_reads_what_it_wrote(shared: PartitionStore, steps: list[Any]) -> None:
    """Changes are read back before the commit; a transaction that is not committed leaves the store as it was."""
    shared.reset()
    state, expected, committed = OpenPartition(shared), dict[bytes, bytes | None](), dict[bytes, bytes | None]()
    for what, key, value in steps:
        if what == "write":
            state.write(key, value)
            expected[key] = value
        else:
            state.keep()
            committed = dict(expected)
        assert all(state.read(known) == wanted for known, wanted in expected.items())
    successor = OpenPartition(shared)
    for key in (b"a", b"b", b"c"):
        assert successor.read(key) == committed.get(key)
