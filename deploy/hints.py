"""What to try first on a running system: commands that work as they stand, with the kinds that it really has."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Set
from pathlib import Path

from deploy.configuration import Configuration
from processor.delivery.templates import Templates
from schemas.state import Ladder

WHO = "ada"
KEY = "first-1"
_VALUES = {"amount": "12 EUR"}
_ADDRESSES = {"push": "token-1", "email": "ada@example.test", "webhook": "https://example.test/ada"}


def program(called_as: str) -> str:
    """How a person in this folder calls the program that was started as `called_as`."""
    path = Path(called_as)
    if path.suffix == ".py":
        return f"{shlex.quote(sys.executable)} -m deploy.cli"
    found = shutil.which(path.name)
    if found is not None and Path(found).absolute() == path.absolute():
        return path.name
    relative = os.path.relpath(path)
    # A path without a folder would be looked for among the installed programs.
    near = relative if os.sep in relative else f".{os.sep}{relative}"
    return shlex.quote(str(path.absolute()) if relative.startswith("..") else near)


def hints(configuration: Configuration, database_url: str, rung: str) -> list[str]:
    """A person's first commands, from the profile to the resolution, and the request from SQL."""
    kind, ladder = _example(configuration)
    channels = dict.fromkeys(step.channel for step in ladder.steps)
    profile = {"addresses": {channel: _ADDRESSES.get(channel, f"@{WHO}") for channel in channels}}
    data = json.dumps({name: _VALUES.get(name, f"some {name}") for name in sorted(_names(configuration, [ladder]))})
    call = f"SELECT rung.notify('{WHO}', '{kind}', '{data}', 'first-2')"
    return [
        f"{rung} recipient put {WHO} {shlex.quote(json.dumps(profile))}",
        f"{rung} notify {WHO} {kind} {KEY} --data {shlex.quote(data)}",
        f"{rung} explain {WHO} {KEY}",
        f"{rung} resolve {WHO} {KEY} done",
        f"{rung} status {WHO} {KEY}",
        f"psql {shlex.quote(database_url)} -c {_in_double_quotes(call)}",
    ]


def _in_double_quotes(text: str) -> str:
    """For a shell; a text with single quotes in it stays readable."""
    return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'


def _example(configuration: Configuration) -> tuple[str, Ladder]:
    """The first of the longest ladders: there is the most to see."""
    return max(configuration.ladders.items(), key=lambda item: len(item[1].steps))


def _names(configuration: Configuration, ladders: Iterable[Ladder]) -> Set[str]:
    """What the templates of these ladders ask of the data."""
    templates = Templates(configuration.templates)
    steps = {(step.template, step.channel) for ladder in ladders for step in ladder.steps}
    return {name for template, channel in steps for name in templates.asks(template, channel)}
