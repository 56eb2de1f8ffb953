"""Free TCP ports on the loopback address."""

from __future__ import annotations

import random
import socket

from deploy.local.errors import StackError

HOST = "127.0.0.1"

# Below 32768, where Linux starts to hand out ports to outgoing connections: a port that a server gives up for the
# moment of a restart would otherwise be taken by somebody's client meanwhile.
_LOWEST, _HIGHEST = 15_000, 32_000
_TRIES = 200


def is_free(port: int) -> bool:
    """Say whether a server could listen on this port of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Kafka and PostgreSQL do: connections that linger in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def accepts(port: int, timeout: float = 0.2) -> bool:
    """Say whether something accepts connections on this port; `timeout` is in seconds."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout):
            return True
    except OSError:
        return False


def free_port(exclude: frozenset[int] = frozenset()) -> int:
    """Choose a free port at random, so that stacks that start at the same time rarely choose the same one."""
    # The system's randomness: tests seed the module's generator, and parallel runs would all draw the same ports.
    draw = random.SystemRandom()
    for _ in range(_TRIES):
        port = draw.randint(_LOWEST, _HIGHEST)
        if port not in exclude and is_free(port):
            return port
    raise StackError(f"No free TCP port was found between {_LOWEST} and {_HIGHEST} on {HOST}.")


def require_free(port: int, owner: str) -> None:
    """Raise `StackError` if somebody listens on the port that `owner` was told to use."""
    if not is_free(port):
        raise StackError(f"Port {port} on {HOST} is taken, so {owner} cannot listen there; choose another port.")
