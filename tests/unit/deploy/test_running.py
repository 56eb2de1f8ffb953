"""Which of the systems that `rung up` started a command in another terminal finds."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from deploy.running import Running, announce, find, living


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state home of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "rung" / "up"


def system(pid: int) -> Running:
    """A system that is told apart by its process."""
    url = f"postgresql://rung:hunter2@127.0.0.1:{pid}/rung"
    return Running(kafka="k", database_url=url, api="a", metrics={}, config_dir="c", state_dir="s", pid=pid)


def test_nothing_runs() -> None:
    """No folder, no system."""
    assert find() is None


def test_a_second_system_does_not_hide_the_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest is found, and said on stderr without its password; when it ends, the first one is found again."""
    with announce(system(1001)):
        # The clock of a file system may be coarse.
        os.utime(folder / "1001.json", (1, 1))
        assert find() == system(1001)
        assert capsys.readouterr().err == ""
        with announce(system(1002)):
            assert find() == system(1002)
            said = capsys.readouterr().err
            assert "2 systems run" in said
            assert "127.0.0.1:1002" in said
            assert "hunter2" not in said
        assert find() == system(1001)
    assert find() is None
    assert list(folder.iterdir()) == []


def test_what_a_dead_process_left_is_not_found(folder: Path) -> None:
    """Its number may belong to another process by now: what counts is the lock, and the file goes."""
    folder.mkdir(parents=True)
    (folder / f"{os.getpid()}.json").write_bytes(msgspec.json.encode(system(os.getpid())))
    assert living() == []
    assert list(folder.iterdir()) == []


def test_only_the_user_may_read_it(folder: Path) -> None:
    """The database's address holds a password."""
    with announce(system(1001)):
        assert (folder / "1001.json").stat().st_mode & 0o077 == 0
