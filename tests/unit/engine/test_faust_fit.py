"""Which Faust the engine refuses, and what it says about it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest

from processor.engine import faust_fit
from processor.engine.port import EngineError


def test_what_is_installed_fits() -> None:
    """The lock file's releases have each name that the engine leans on."""
    faust_fit.check()


@pytest.mark.parametrize("package", faust_fit.RELEASES)
def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """The message names the package and how it is installed."""

    def found(name: str) -> str:
        if name == package:
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(faust_fit, "version", found)
    with pytest.raises(EngineError, match=rf"needs {package}, which is not installed: pip install 'rung\[faust\]'"):
        faust_fit.check()


@pytest.mark.parametrize("package", faust_fit.RELEASES)
def test_another_release(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """A release that was not looked at is refused, older or newer."""
    monkeypatch.setattr(faust_fit, "version", lambda name: "99.0" if name == package else version(name))
    with pytest.raises(EngineError, match=f"found {package} 99.0 instead of {faust_fit.RELEASES[package]}"):
        faust_fit.check()


@pytest.mark.parametrize("place", faust_fit.PRIVATE)
def test_a_private_name_that_is_gone(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """A name that the engine would override for nothing is missed, in each class."""
    monkeypatch.setattr(faust_fit, "PRIVATE", {**faust_fit.PRIVATE, place: ("_renamed_upstream",)})
    with pytest.raises(EngineError, match=f"it has no {place}._renamed_upstream"):
        faust_fit.check()


def test_a_class_that_is_gone() -> None:
    """All of its names are missed."""
    assert faust_fit.missing_names({"faust.app.base:NoApp": ("start", "stop")}) == [
        "faust.app.base:NoApp.start",
        "faust.app.base:NoApp.stop",
    ]
