"""The demo as a newcomer runs it: to its end, and interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from deploy.demo.judge import Kind
from tests.support.eventually import eventually

COMMAND = [sys.executable, "-m", "deploy.cli", "demo", "--keep"]


def left_running(folder: Path) -> list[str]:
    """Processes that still work in the demo's folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder) in line and process.pid != os.getpid():
            found.append(line)
    return found


@pytest.mark.timeout(240)
def test_the_demo_passes_its_own_check(tmp_path: Path) -> None:
    """Exit code 0 within three minutes, a timeline, a summary, and nothing left running."""
    result = subprocess.run([*COMMAND, str(tmp_path)], capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert "claimed (attempt 1)" in result.stdout
    assert "sent per channel" in result.stdout
    for fault in Kind:
        assert re.search(rf"^  {fault} +0$", result.stdout, re.MULTILINE), fault
    assert left_running(tmp_path) == []


@pytest.mark.timeout(180)
def test_an_interrupted_demo_stops_everything(tmp_path: Path) -> None:
    """Ctrl-C in the middle of the play: exit code 130, and nothing left running."""
    process = subprocess.Popen([*COMMAND, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        eventually((tmp_path / "app.jsonl").exists, 90, describe="the application to begin")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted" in output
    assert left_running(tmp_path) == []


@pytest.mark.timeout(180)
@pytest.mark.parametrize("command", ["demo", "up"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_stops_at_once(tmp_path: Path, command: str, number: signal.Signals) -> None:
    """As soon as it says that it starts something: exit code 130 long before a start could have ended, and nothing
    left running."""
    folder = "--keep" if command == "demo" else "--state"
    process = subprocess.Popen(
        [sys.executable, "-m", "deploy.cli", command, folder, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "starting" in process.stdout.readline()
        process.send_signal(number)
        output, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, output
    assert "interrupted" in output
    assert "Traceback" not in output
    assert "starting services" not in output
    assert left_running(tmp_path) == []
