"""Instances of another engine in the group: Kafka lets no instance in beside them."""

import time

import structlog

from processor.engine.config import ProcessorConfig
from processor.engine.port import EngineError

MARGIN_SECONDS = 5.0
"""How much longer than a session Kafka may take to see that somebody is gone."""

_log = structlog.get_logger("rung.processor")


class Neighbours:
    """Waits for those who have stopped and are still known to Kafka, and gives up on those who run."""

    def __init__(self, config: ProcessorConfig) -> None:
        self._config = config
        self._met_at: float | None = None

    def met(self) -> None:
        """Kafka has said that the group's members run something else.

        Raises:
            EngineError: it has said so for longer than a stopped instance is known.
        """
        now = time.monotonic()
        if self._met_at is None:
            self._met_at = now
            _log.warning("another_engine_in_the_group", group=self._config.group, engine=self._config.engine)
        if now - self._met_at > self._config.session_seconds + MARGIN_SECONDS:
            raise EngineError(
                f"the group {self._config.group} has instances that run another engine than {self._config.engine}: "
                "stop every processor, then start all of them with the same one"
            )
