"""Numbered SQL files, each applied once and in its own transaction, and the check that database and code fit.

Every service that keeps tables has a folder of files `NNNN_name.sql`; numbers are unique over all folders. A file is
never changed after its release: a change is a new file.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

_RELAY = Path(__file__).resolve().parent.parent
DIRECTORIES: tuple[Path, ...] = (_RELAY / "outbox" / "sql", _RELAY / "journal" / "sql")
_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
# An arbitrary number that only migrations of this project use.
_LOCK = 8206170491301

_CREATE_TABLE = """
CREATE SCHEMA IF NOT EXISTS rung;
CREATE TABLE IF NOT EXISTS rung.schema_migration (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


class MigrationError(RuntimeError):
    """Database and code do not fit; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    version: int
    name: str
    path: Path

    @property
    def label(self) -> str:
        """Number and name, as the file has them."""
        return f"{self.version:04}_{self.name}"

    def read(self) -> str:
        """The SQL."""
        return self.path.read_text(encoding="utf-8")

    def checksum(self) -> str:
        """Tells whether a file was changed after it was applied."""
        return hashlib.sha256(self.read().encode()).hexdigest()


def available(directories: Iterable[Path] = DIRECTORIES) -> list[Migration]:
    """All migrations of the code, by number.

    Raises:
        MigrationError: two files have one number, or a file has no number.
    """
    found: dict[int, Migration] = {}
    for path in sorted(p for d in directories if d.is_dir() for p in d.glob("*.sql")):
        match = _FILE.fullmatch(path.name)
        if match is None:
            raise MigrationError(f"{path} is not named NNNN_name.sql")
        migration = Migration(int(match[1]), match[2], path)
        if migration.version in found:
            raise MigrationError(f"{path} has the number of {found[migration.version].path}")
        found[migration.version] = migration
    return [found[version] for version in sorted(found)]


def migrate(conninfo: str, directories: Sequence[Path] = DIRECTORIES) -> list[str]:
    """Apply what is missing, in the order of the numbers, and return the names of what was applied.

    Several may call this at the same time: an advisory lock lets one work and the others find nothing left to do.

    Raises:
        MigrationError: the database knows a migration that the code does not, a file was changed after it was
            applied, or the database does not store text as UTF-8.
        psycopg.Error: the database cannot be reached, or refuses; the file at fault left no trace.
    """
    migrations = available(directories)
    with psycopg.connect(conninfo, autocommit=True) as connection, _locked(connection):
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise MigrationError(f"the database stores text as {encoding}: create one with ENCODING 'UTF8'")
        connection.execute(_CREATE_TABLE)
        applied = _applied(connection)
        _refuse_misfits(applied, migrations)
        missing = [m for m in migrations if m.version not in applied]
        for migration in missing:
            _apply(connection, migration)
    return [m.label for m in missing]


def schema_version(conninfo: str) -> int:
    """The highest migration that was applied; 0 if there is none."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        return max(_applied(connection), default=0)


def check_schema(conninfo: str, directories: Sequence[Path] = DIRECTORIES) -> None:
    """Refuse a database that lacks a migration of the code, or that newer code has migrated.

    Raises:
        MigrationError: it does; the message says what to do.
        psycopg.Error: the database cannot be reached.
    """
    with psycopg.connect(conninfo, autocommit=True) as connection:
        applied = _applied(connection)
    migrations = available(directories)
    _refuse_misfits(applied, migrations)
    missing = [m.label for m in migrations if m.version not in applied]
    if missing:
        raise MigrationError(f"the database lacks {', '.join(missing)}: run `rung migrate`")


def _applied(connection: psycopg.Connection[TupleRow]) -> dict[int, tuple[str, str]]:
    try:
        rows = connection.execute("SELECT version, name, checksum FROM rung.schema_migration").fetchall()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return {}
    return {version: (name, checksum) for version, name, checksum in rows}


def _refuse_misfits(applied: dict[int, tuple[str, str]], migrations: Sequence[Migration]) -> None:
    known = {m.version: m for m in migrations}
    newer = sorted(set(applied) - set(known))
    if newer:
        labels = ", ".join(f"{version:04}_{applied[version][0]}" for version in newer)
        raise MigrationError(f"the database is newer than this program (it has {labels}): install the newer version")
    changed = [m.label for v, m in known.items() if v in applied and applied[v][1] != m.checksum()]
    if changed:
        raise MigrationError(f"changed after being applied: {', '.join(changed)}; a change must be a new file")


def _apply(connection: psycopg.Connection[TupleRow], migration: Migration) -> None:
    with connection.transaction():
        connection.execute(migration.read().encode())
        connection.execute(
            "INSERT INTO rung.schema_migration (version, name, checksum) VALUES (%s, %s, %s)",
            (migration.version, migration.name, migration.checksum()),
        )


@contextmanager
def _locked(connection: psycopg.Connection[TupleRow]) -> Iterator[None]:
    connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))
