"""The sinks of the demo as processes of a test: start, script, read what they received, stop."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

STOP_SECONDS = 5.0


@dataclass
class Sink:
    """A running sink. `port` is where it listens."""

    process: subprocess.Popen[str]
    port: int
    record: Path
    script: Path

    @property
    def url(self) -> str:
        """Of an HTTP sink."""
        return f"http://127.0.0.1:{self.port}"

    def calls(self) -> list[dict[str, Any]]:
        """What it has received so far, in order."""
        if not self.record.exists():
            return []
        lines = self.record.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line]

    def answer(self, *rules: dict[str, Any]) -> None:
        """Replace the rules."""
        # Written beside and moved, so that the sink never reads half a file.
        beside = self.script.with_suffix(".new")
        beside.write_text(json.dumps({"rules": list(rules)}), encoding="utf-8")
        beside.replace(self.script)


@contextlib.contextmanager
def running_sink(kind: Literal["http", "smtp"], folder: Path, name: str = "") -> Iterator[Sink]:
    """Start a sink that keeps its files in `folder`, and stop it in the end."""
    record, script = folder / f"{kind}{name}.jsonl", folder / f"{kind}{name}-script.json"
    command = [sys.executable, "-m", f"deploy.demo.{kind}_sink", "--record", str(record), "--script", str(script)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, f"the {kind} sink ended with {process.wait()} before it listened"
        yield Sink(process, json.loads(first)["port"], record, script)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
