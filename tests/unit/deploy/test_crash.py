"""Crash points: the catalogue is what the services call, and an armed point ends the process there and nowhere else."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.crash import CATALOGUE, armed, nowhere
from deploy.settings import SettingsError

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "outbox": ("relay/outbox", ()),
    "delays": ("relay/delays", ()),
    "processor": ("processor/engine", ("plane.py", "transaction.py")),
    "processor on Faust": ("processor/engine", ("quix_clients.py",)),
    "deliver": ("processor/delivery", ()),
    "journal": ("relay/journal", ()),
}
"""Service to its package, and the modules that only its other engine runs."""


def called_in(package: Path, others: tuple[str, ...]) -> Iterator[str]:
    """The names with which the code of a package calls something named `at` or `_at`."""
    for file in sorted(package.rglob("*.py")):
        if file.name in others:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("at", "_at"):
                (name,) = node.args
                assert isinstance(name, ast.Constant), f"{file}:{node.lineno}: a point's name is written out"
                yield str(name.value)


@pytest.mark.parametrize("service", PACKAGES)
def test_the_catalogue_is_what_is_called(service: str) -> None:
    """Every name of the catalogue is passed in one place of its service, and no other name is."""
    package, others = PACKAGES[service]
    assert sorted(called_in(ROOT / package, others)) == sorted(CATALOGUE[service.partition(" ")[0]])


def test_each_service_is_looked_at() -> None:
    """A service that is added has to be added here."""
    assert {service.partition(" ")[0] for service in PACKAGES} == set(CATALOGUE)


def test_each_name_is_there_once() -> None:
    """A name says which service it is of."""
    names = [name for points in CATALOGUE.values() for name in points]
    assert len(names) == len(set(names))


def test_none_is_armed_by_default() -> None:
    """Without the setting the function is one that does nothing."""
    assert armed("") is nowhere


@pytest.mark.parametrize("spec", ["outbox.read", "outbox.read.before:0", "outbox.read.before:x", "outbox.read.before:"])
def test_a_point_that_cannot_be_passed_is_refused(spec: str) -> None:
    """A typing error would be a sweep that tests nothing."""
    with pytest.raises(SettingsError, match="RUNG_CRASH_AT"):
        armed(spec)


@pytest.mark.parametrize(("spec", "passings"), [("delays.commit.after", 1), ("delays.commit.after:3", 3)])
def test_it_dies_at_the_passing_that_was_named(spec: str, passings: int) -> None:
    """The process ends by SIGKILL at the N-th passing of its point, however often it passes others."""
    code = (
        "from deploy.crash import armed\n"
        f"at = armed({spec!r})\n"
        "for number in range(1, 10):\n"
        "    at('delays.commit.before')\n"
        "    print(number, flush=True)\n"
        "    at('delays.commit.after')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == -signal.SIGKILL
    assert run.stdout.split() == [str(number) for number in range(1, passings + 1)]
