"""What the files of `deploy/` are held against."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.docs import registries

DEPLOY = Path(__file__).parents[2] / "deploy"
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


@pytest.fixture(scope="session")
def metric_names() -> frozenset[str]:
    """Every series name that a service of ours exposes, and Prometheus's own `up`."""
    names = {"up"}
    for registry in registries().values():
        for family in registry.collect():
            names |= {family.name + suffix for suffix in _SUFFIXES[family.type]}
    return frozenset(names)


@pytest.fixture(scope="session")
def names_in() -> object:
    """A function: the metric names of an expression."""

    def found(expression: str) -> set[str]:
        bare = re.sub(r'"[^"]*"', '""', expression)
        return set(re.findall(r"\b(?:rung_\w+|up)\b", bare))

    return found
