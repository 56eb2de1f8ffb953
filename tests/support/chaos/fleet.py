"""The services as processes: several of each, watched, killed, armed with a crash point, and started again at once."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from deploy.local.ports import free_port
from deploy.local.supervisor import Child, Supervisor
from tests.support.chaos.load import now_ms

POLL_SECONDS = 0.05
SAMPLE_SECONDS = 5.0


@dataclass(frozen=True)
class Death:
    """The end of a process that was not asked to end. `code` is negative for a signal."""

    name: str
    at: int
    code: int
    armed: str
    """The crash point that it was started with, or nothing."""


@dataclass
class Memory:
    """Samples of one process's resident memory, in bytes; of processes that were young nothing is kept."""

    samples: list[int] = field(default_factory=list)


class Fleet:
    """Processes by name, such as `outbox-1`."""

    def __init__(self, folder: Path, environment: Mapping[str, str], counts: Mapping[str, int]) -> None:
        """`counts` says how many of each service are started; more can be added."""
        self._folder = folder
        self._common = dict(environment)
        self._supervisor = Supervisor()
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._armed: dict[str, str] = {}
        self._chains: dict[str, list[str]] = defaultdict(list)
        self._ports: dict[str, int] = {}
        self._env: dict[str, dict[str, str]] = {}
        self._watcher = threading.Thread(target=self._watch, name="fleet", daemon=True)
        self.deaths: list[Death] = []
        self.memory: dict[str, Memory] = defaultdict(Memory)
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        for service, count in counts.items():
            for number in range(1, count + 1):
                self.add(f"{service}-{number}")

    @property
    def metrics(self) -> dict[str, str]:
        """The addresses of the metrics of all processes."""
        return {name: f"http://127.0.0.1:{port}/metrics" for name, port in self._ports.items()}

    def add(self, name: str) -> None:
        """Make a process known; its name is that of its service with a number."""
        service = name.rpartition("-")[0]
        self._ports[name] = free_port(frozenset(self._ports.values()))
        self._env[name] = {
            **self._common,
            "RUNG_METRICS_PORT": str(self._ports[name]),
            "RUNG_INSTANCE_ID": name,
            "RUNG_STATE_DIR": str(self.state_dir(name)),
        }
        command = [sys.executable, "-m", "deploy.cli", service]
        self._supervisor.add(Child(name, command, self.logs / f"{name}.log", self._env[name]))

    def state_dir(self, name: str) -> Path:
        """Where a process keeps its state."""
        return self._folder / "state" / name

    def start_all(self) -> None:
        """Start every process and watch them."""
        self._supervisor.start_all()
        self._watcher.start()

    def start(self, name: str) -> None:
        """Start a process."""
        with self._lock:
            self._supervisor.start(name)

    def stop(self, name: str, seconds: float = 30.0) -> None:
        """Stop a process in order.

        Raises:
            AssertionError: it did not end by itself in time.
        """
        assert not self._supervisor.stop(name, seconds), f"{name} did not stop within {seconds} s: {self.logs}"

    def kill(self, name: str) -> int:
        """Kill a process, as a crash would; it is started again at once. Returns the moment."""
        at = now_ms()
        self._supervisor.kill(name)
        return at

    def arm(self, name: str, spec: str) -> None:
        """Let a process run into a crash point after its next start."""
        with self._lock:
            self._armed[name] = spec
            self._supervisor.change(name, {**self._env[name], "RUNG_CRASH_AT": spec})

    def chain(self, name: str, specs: Sequence[str]) -> None:
        """Kill a process, and let it run into one crash point after the other, one for each start."""
        with self._lock:
            self._chains[name] = list(specs)
        self.kill(name)

    @property
    def chained(self) -> list[str]:
        """Processes that have points of a chain before them."""
        with self._lock:
            return [
                name
                for name in self._armed.keys() | self._chains.keys()
                if self._armed.get(name) or self._chains.get(name)
            ]

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process."""
        pid = self._supervisor.pid(name)
        assert pid is not None, f"{name} does not run"
        os.kill(pid, number)

    def running(self, name: str) -> bool:
        """Whether a process runs."""
        return self._supervisor.pid(name) is not None

    def _watch(self) -> None:
        sampled = 0.0
        while not self._stop.wait(POLL_SECONDS):
            with self._lock:
                for ended in self._supervisor.poll():
                    armed = self._armed.pop(ended.name, "")
                    self.deaths.append(Death(ended.name, now_ms(), ended.code, armed))
                    following = self._chains[ended.name].pop(0) if self._chains[ended.name] else ""
                    if following:
                        self.arm(ended.name, following)
                    else:
                        self._supervisor.change(ended.name, self._env[ended.name])
                    self._supervisor.start(ended.name)
            if time.monotonic() - sampled >= SAMPLE_SECONDS:
                sampled = time.monotonic()
                self._sample()

    def _sample(self) -> None:
        for name in self._supervisor.names:
            pid = self._supervisor.pid(name)
            if pid is None:
                continue
            try:
                process = psutil.Process(pid)
                if time.time() - process.create_time() > SAMPLE_SECONDS * 2:
                    self.memory[name].samples.append(process.memory_info().rss)
            except psutil.NoSuchProcess:
                continue

    def close(self) -> list[str]:
        """Stop all; returns the names of those that had to be killed."""
        self._stop.set()
        if self._watcher.is_alive():
            self._watcher.join()
        return self._supervisor.stop_all(30.0)
