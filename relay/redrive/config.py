"""The settings of one redrive."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from relay.redrive.judgement import Understood, plainly
from schemas.topics import Naming

LIMIT = 3
"""How often one record may go back: a fault that three redrives did not mend is not mended by a fourth."""
RATE = 50.0
"""Records a second: a quarter of a percent of what the processor takes, so that live traffic does not feel it."""


@dataclass(frozen=True, slots=True)
class RedriveConfig:
    """Which letters, how fast, and whether at all."""

    kafka: Mapping[str, str]
    """Settings of every client, with `bootstrap.servers`."""
    naming: Naming = field(default_factory=Naming)
    dry_run: bool = True
    reasons: frozenset[str] = frozenset()
    """Only these reasons; empty for all."""
    topics: frozenset[str] = frozenset()
    """Only from these topics, by their catalogue names; empty for all."""
    recipient: str | None = None
    since: int | None = None
    """Only what was set aside from this moment on, milliseconds since the epoch."""
    rate: float = RATE
    limit: int = LIMIT
    understood: Understood = plainly
    """How a letter's reader would read it today."""
