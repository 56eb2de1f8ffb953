"""The crash suite: `make chaos-short`, and in its long form `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

OTHER_FORM = {"short": "_long.py", "long": "_short.py"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """One of the two forms is run."""
    return True if collection_path.name.endswith(OTHER_FORM[config.getoption("--chaos")]) else None
