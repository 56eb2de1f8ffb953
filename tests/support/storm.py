"""A storm over a few processes: one of them is killed, ended or frozen every few seconds, and started again."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Launch = Callable[[int], subprocess.Popen[bytes]]
"""Starts the process of an instance, which has stopped before or never ran."""
END_SECONDS = 30.0
"""How long a process that was asked to end may take; after that it is killed, as whoever runs it would."""
FROZEN_SECONDS = 14.0
"""Longer than a session."""


@dataclass
class Fleet:
    """Instances of one program, each started again when it has ended, as whoever runs them would."""

    launch: Launch
    size: int
    codes: Counter[int] = field(default_factory=Counter)
    """How often an instance ended with which code, of its own or when asked; the kills do not count."""
    overdue: int = 0
    """How often one that was asked to end did not."""

    def __post_init__(self) -> None:
        self.running = [self.launch(number) for number in range(self.size)]
        self._frozen: dict[int, float] = {}

    def tend(self) -> None:
        """Start what has ended, and wake what has slept long enough."""
        for number, process in enumerate(self.running):
            if process.poll() is not None:
                self.codes[process.returncode] += 1
                self._frozen.pop(number, None)
                self.running[number] = self.launch(number)
        for number, until in list(self._frozen.items()):
            if time.monotonic() >= until:
                self._frozen.pop(number)
                self.running[number].send_signal(signal.SIGCONT)

    def awake(self) -> list[int]:
        """The instances that are not frozen."""
        return [number for number in range(self.size) if number not in self._frozen]

    def kill(self, number: int) -> None:
        """SIGKILL, and start it again."""
        self.running[number].kill()
        self.running[number].wait()
        self.running[number] = self.launch(number)

    def end(self, number: int) -> None:
        """SIGTERM, wait, and start it again."""
        self.codes[self._ended(self.running[number])] += 1
        self.running[number] = self.launch(number)

    def freeze(self, number: int) -> None:
        """SIGSTOP; `tend` wakes it."""
        self.running[number].send_signal(signal.SIGSTOP)
        self._frozen[number] = time.monotonic() + FROZEN_SECONDS

    def close(self) -> None:
        """Leave nothing running."""
        for process in self.running:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def _ended(self, process: subprocess.Popen[bytes]) -> int:
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.overdue += 1
            process.kill()
            return process.wait()


def storm(
    fleet: Fleet,
    faults: Sequence[str],
    every: float,
    feed: Callable[[], object],
    seed: int,
    others: Mapping[str, Callable[[], object]],
) -> None:
    """Let faults come over a fleet.

    Args:
        fleet: the processes.
        faults: in order, `K` for SIGKILL, `T` for SIGTERM, `S` for a freeze that is longer than a session.
        every: seconds between two.
        feed: called some times a second; puts work in.
        seed: of whom they hit.
        others: faults of what the fleet works with, by letter.
    """
    dice = random.Random(seed)
    for fault in faults:
        until = time.monotonic() + every
        while time.monotonic() < until:
            feed()
            fleet.tend()
            time.sleep(0.1)
        if fault in others:
            others[fault]()
            continue
        awake = fleet.awake()
        if not awake:
            continue
        {"K": fleet.kill, "T": fleet.end, "S": fleet.freeze}[fault](dice.choice(awake))


def settle(fleet: Fleet, done: Callable[[], bool], seconds: float) -> bool:
    """Tend a fleet until the work is done, and say whether that came in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        fleet.tend()
        if done():
            return True
        time.sleep(0.3)
    return False
