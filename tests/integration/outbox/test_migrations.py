"""Migrations on real PostgreSQL: once, in order, safe to run together, and clear about what does not fit."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from relay.outbox.migrations import DIRECTORIES, MigrationError, available, check_schema, migrate, schema_version


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the outbox's files that a test may change."""
    return Path(shutil.copytree(DIRECTORIES[0], tmp_path / "sql"))


def test_a_database_is_migrated_once(database_url: str) -> None:
    """The first run applies all files in the order of their numbers, the second none; then the check is content."""
    assert schema_version(database_url) == 0
    with pytest.raises(MigrationError, match="run `rung migrate`"):
        check_schema(database_url)
    labels = migrate(database_url)
    assert labels == [m.label for m in available()]
    assert labels == sorted(labels)
    assert migrate(database_url) == []
    assert schema_version(database_url) == available()[-1].version
    check_schema(database_url)


def test_many_may_migrate_at_the_same_time(database_url: str) -> None:
    """Of several that start together each file is applied by one."""
    with ThreadPoolExecutor(4) as pool:
        applied = [label for labels in pool.map(migrate, [database_url] * 4) for label in labels]
    assert applied == [m.label for m in available()]


def test_a_newer_database_is_refused(database_url: str, folder: Path) -> None:
    """Code that lacks a migration of the database neither migrates nor starts."""
    (folder / "0042_later.sql").write_text("SELECT 1")
    migrate(database_url, [folder])
    (folder / "0042_later.sql").unlink()
    for refuse in (migrate, check_schema):
        with pytest.raises(MigrationError, match=r"newer than this program \(it has 0042_later\)"):
            refuse(database_url, [folder])


def test_a_file_that_fails_leaves_no_trace(database_url: str, folder: Path) -> None:
    """A faulty file is undone whole, those before it stay, and it is applied once it is mended."""
    faulty = folder / "0042_faulty.sql"
    faulty.write_text("CREATE TABLE rung.half (); SELECT 1/0;")
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(database_url, [folder])
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT to_regclass('rung.half'), to_regclass('rung.outbox')::text").fetchone() == (
            None,
            "rung.outbox",
        )
    faulty.write_text("CREATE TABLE rung.half ();")
    assert migrate(database_url, [folder]) == ["0042_faulty"]


def test_a_changed_file_is_noticed(database_url: str, folder: Path) -> None:
    """A file that was changed after it was applied is named, rather than ignored."""
    migrate(database_url, [folder])
    path = folder / "0001_outbox.sql"
    path.write_text(path.read_text() + "\n-- changed")
    with pytest.raises(MigrationError, match="changed after being applied: 0001_outbox"):
        migrate(database_url, [folder])


def test_numbers_are_unique_over_all_folders(folder: Path, tmp_path: Path) -> None:
    """Two files with one number, or a file without one, are refused."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "0001_again.sql").write_text("SELECT 1")
    with pytest.raises(MigrationError, match="has the number of"):
        available([folder, other])
    (other / "0001_again.sql").rename(other / "again.sql")
    with pytest.raises(MigrationError, match="not named NNNN_name"):
        available([folder, other])
