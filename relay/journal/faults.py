"""Whose fault a database error is: the one classification that retries, dead letters and crashes follow."""

from enum import StrEnum

import psycopg


class Fault(StrEnum):
    """What an error of PostgreSQL means to the journal."""

    DATABASE = "database"
    """It is away, full, or gave way to another: the same transaction may pass later."""
    RECORD = "record"
    """A value that PostgreSQL does not take, whenever it is tried."""
    OURS = "ours"
    """A missing table or right, or wrong SQL: retrying hides it."""


RECORD_CLASSES = frozenset({"22", "54"})
"""Data exception, program limit exceeded."""
UNIQUE_VIOLATION = "23505"
CHECK_VIOLATION = "23514"
"""What PostgreSQL calls a row without a partition: the partition was dropped meanwhile and can be made again."""
OUR_CLASSES = frozenset({"0A", "23", "28", "3D", "3F", "42"})
"""Feature not supported, integrity, authorization, unknown database or schema, syntax error or access rule."""


def classify(error: psycopg.Error) -> Fault:
    """Say whose fault it is; an error without an SQLSTATE is the connection's, unless psycopg refused the value."""
    sqlstate = error.sqlstate
    if sqlstate is None:
        return Fault.RECORD if isinstance(error, psycopg.DataError) else Fault.DATABASE
    if sqlstate == CHECK_VIOLATION:
        return Fault.DATABASE
    if sqlstate == UNIQUE_VIOLATION or sqlstate[:2] in RECORD_CLASSES:
        return Fault.RECORD
    return Fault.OURS if sqlstate[:2] in OUR_CLASSES else Fault.DATABASE
