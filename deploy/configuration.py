"""The configuration directory: ladders.toml, channels.toml and templates/, read and checked as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from processor.delivery.channels_config import ChannelsError, ProviderConfig, parse_channels
from processor.delivery.templates import check_templates
from processor.domain.ladders import LadderError
from processor.engine.ladder_file import load_ladders
from schemas.state import Ladder


class ConfigurationError(ValueError):
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
    try:
        ladders = load_ladders(folder / "ladders.toml")
        source = folder / "channels.toml"
        channels = parse_channels(source.read_text(encoding="utf-8"), str(source))
    except (LadderError, ChannelsError) as error:
        raise ConfigurationError(str(error)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the configuration directory {folder} cannot be read: {error}") from error
    faults = [
        f"{folder / 'ladders.toml'}: kind {kind}, step {number}: channel {step.channel!r} has no [channels."
        f"{step.channel}] in channels.toml; there are: {', '.join(sorted(channels)) or 'none'}"
        for kind, ladder in ladders.items()
        for number, step in enumerate(ladder.steps)
        if step.channel not in channels
    ]
    faults += check_templates(folder / "templates", ladders)
    if faults:
        raise ConfigurationError("\n".join(faults))
    return Configuration(folder, ladders, channels)
