"""The configuration directory: ladders.toml, channels.toml and templates/, read and checked as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.errors import CommandError
from processor.delivery.channels_config import ChannelsError, ProviderConfig, parse_channels, read_secrets
from processor.delivery.templates import check_templates
from processor.domain.ladders import LadderError
from processor.engine.ladder_file import load_ladders
from schemas.state import Ladder


class ConfigurationError(CommandError, ValueError):
    """The configuration directory has faults; the message names every place and what to do."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a configuration directory says."""

    folder: Path
    ladders: Mapping[str, Ladder]
    channels: Mapping[str, tuple[ProviderConfig, ...]]

    @property
    def templates(self) -> Path:
        """The folder of the templates."""
        return self.folder / "templates"


def load_configuration(folder: Path) -> Configuration:
    """Read a configuration directory and check that its parts fit each other: each ladder's channels have providers,
    and each step has its template.

    Raises:
        ConfigurationError: with everything that is wrong, at once.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"the configuration directory {folder} does not exist")
    faults: list[str] = []
    ladders: Mapping[str, Ladder] = {}
    channels: Mapping[str, tuple[ProviderConfig, ...]] | None = None
    try:
        ladders = load_ladders(folder / "ladders.toml")
    except LadderError as error:
        faults += error.problems
    try:
        channels = _load_channels(folder / "channels.toml")
    except ChannelsError as error:
        faults += error.problems
    if channels is not None:
        faults += [
            f"{folder / 'ladders.toml'}: kind {kind}, step {number}: channel {step.channel!r} has no [channels."
            f"{step.channel}] in channels.toml; there are: {', '.join(sorted(channels)) or 'none'}"
            for kind, ladder in ladders.items()
            for number, step in enumerate(ladder.steps)
            if step.channel not in channels
        ]
    faults += check_templates(folder / "templates", ladders)
    if faults or channels is None:
        raise ConfigurationError("\n".join(faults))
    return Configuration(folder, ladders, channels)


def _load_channels(path: Path) -> Mapping[str, tuple[ProviderConfig, ...]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ChannelsError([f"{path}: this is not UTF-8 at byte {error.start}: save the file as UTF-8"]) from error
    except OSError as error:
        raise ChannelsError([f"{path}: the file cannot be read: {error.strerror or error}"]) from error
    return parse_channels(text, str(path))


def secrets(configuration: Configuration, environment: Mapping[str, str]) -> dict[str, str]:
    """The values of the variables that the channels name.

    Raises:
        ConfigurationError: names each variable that is not set, and no value.
    """
    try:
        return read_secrets(configuration.channels, environment, str(configuration.folder / "channels.toml"))
    except ChannelsError as error:
        raise ConfigurationError(str(error)) from error
