"""Structured logs: one JSON object a line on stderr, with ids and reason codes, and never a body or an address."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import msgspec
import structlog


def configure(level: str, service: str) -> None:
    """Log from `level` up, with the service's name; the libraries' own logs go the same way, from warnings up."""
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.contextvars.merge_contextvars,
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer(_encode)],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        # A logger is put together at its first line and not again at each.
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)


def _encode(event: Any, **_: Any) -> bytes:
    """A line as JSON, which the services write for every attempt; what JSON has no form for is shown as Python does."""
    try:
        return msgspec.json.encode(event, enc_hook=repr)
    except (ValueError, OverflowError):
        # Half a surrogate pair, such as a file's name may hold; or a number without end.
        return json.dumps(event, default=repr).encode()
