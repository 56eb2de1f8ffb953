"""Show a simulation: plain text (the same bytes each time), colours for a terminal, JSON for a program."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.text import Text
from rich.theme import Theme

from processor.domain.ladders import LadderError
from processor.lab.scenario import ScenarioError
from processor.lab.simulation import FinalState, Simulation, simulate

_THEME = Theme(
    {
        "lab.time": "dim",
        "lab.label": "bold cyan",
        "lab.good": "green",
        "lab.bad": "red",
        "lab.wait": "yellow",
        "lab.text": "default",
    }
)


class _Highlighter(RegexHighlighter):
    base_style = "lab."
    highlights = [
        r"^(?P<time>(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(\.\d+)?) (?P<label>\S+)",
        r"(?P<good>\b(sent|delivered|resolved|created=true)\b)",
        r"(?P<bad>\b(dead|rejected|refused|failed|expired)\b)",
        r"(?P<wait>\b(retry at|moved|promoted|suppressed|unknown|too late|waits)\b)",
    ]


def plain(simulation: Simulation) -> str:
    """The requests, the log by time, the final states, and what the providers took."""
    parts = [
        [f"{line.time} {line.label:<8} {line.text}" for line in simulation.requests],
        [f"{line.time} {line.label} {line.text}" for line in simulation.log],
        [_state(state) for state in simulation.states],
        [f"actually delivered: {' '.join(f'{channel}:{address}' for channel, address in simulation.delivered) or '-'}"],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _state(state: FinalState) -> str:
    line = (
        f"{state.label} {state.recipient:<18} state={state.state:<6} attempts={state.attempts} "
        f"last_error={json.dumps(state.last_error, ensure_ascii=False)}"
    )
    if len(state.steps) == 1:
        return line
    return f"{line} steps={','.join(f'{step.channel}:{step.state}' for step in state.steps)}"


def as_json(simulation: Simulation) -> dict[str, Any]:
    """The simulation as JSON values; moments are milliseconds since the epoch."""
    return {
        "requests": [asdict(line) for line in simulation.requests],
        "log": [asdict(line) for line in simulation.log],
        "states": [asdict(state) for state in simulation.states],
        "delivered": [{"channel": channel, "address": address} for channel, address in simulation.delivered],
        "events": [{"type": kind, **msgspec.to_builtins(event)} for kind, event in simulation.events],
        "recipients": {name: msgspec.to_builtins(state) for name, state in simulation.recipients.items()},
    }


def run(
    ladders: Path,
    scenario: Path,
    *,
    json_output: bool = False,
    jitter: bool = False,
    console: Console | None = None,
) -> int:
    """Play the files and print what came of it; what is wrong with them goes to standard error.

    Colours are for a terminal (of `console`, by default standard output) alone.

    Returns:
        The exit status: 0, or 2 if a file cannot be read or is not sound.
    """
    try:
        simulation = simulate(
            _read(ladders),
            _read(scenario),
            jitter=jitter,
            ladders_source=str(ladders),
            scenario_source=str(scenario),
        )
    except (LadderError, ScenarioError) as error:
        print("\n".join(error.problems), file=sys.stderr)
        return 2
    if json_output:
        print(json.dumps(as_json(simulation), indent=2, ensure_ascii=False))
        return 0
    _print(plain(simulation), console or Console())
    return 0


def _print(text: str, console: Console) -> None:
    if not console.is_terminal:
        console.file.write(text)
        return
    highlighter = _Highlighter()
    with console.use_theme(_THEME):
        for line in text.splitlines():
            console.print(highlighter(Text(line)), soft_wrap=True)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScenarioError([f"{path}: this is not UTF-8 at byte {error.start}: save the file as UTF-8"]) from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ScenarioError([f"{path}: cannot be read: {why}"]) from error
