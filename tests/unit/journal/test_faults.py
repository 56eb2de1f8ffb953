"""Whose fault a database error is."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from relay.journal.faults import Fault, classify


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (psycopg.OperationalError("connection refused"), Fault.DATABASE),
        (psycopg.InterfaceError("the connection is closed"), Fault.DATABASE),
        (psycopg.DataError("NUL bytes"), Fault.RECORD),
        (errors.UntranslatableCharacter(), Fault.RECORD),
        (errors.NumericValueOutOfRange(), Fault.RECORD),
        (errors.UniqueViolation(), Fault.RECORD),
        (errors.ProgramLimitExceeded(), Fault.RECORD),
        (errors.CheckViolation(), Fault.DATABASE),
        (errors.SerializationFailure(), Fault.DATABASE),
        (errors.DeadlockDetected(), Fault.DATABASE),
        (errors.AdminShutdown(), Fault.DATABASE),
        (errors.CannotConnectNow(), Fault.DATABASE),
        (errors.DiskFull(), Fault.DATABASE),
        (errors.TooManyConnections(), Fault.DATABASE),
        (errors.ReadOnlySqlTransaction(), Fault.DATABASE),
        (errors.UndefinedTable(), Fault.OURS),
        (errors.InsufficientPrivilege(), Fault.OURS),
        (errors.InvalidPassword(), Fault.OURS),
        (errors.NotNullViolation(), Fault.OURS),
        (errors.SyntaxError(), Fault.OURS),
    ],
)
def test_classify(error: psycopg.Error, fault: Fault) -> None:
    """What may pass is tried again, what is the record's is set aside, what is ours is loud."""
    assert classify(error) is fault
