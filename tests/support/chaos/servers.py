"""Kafka and PostgreSQL with a proxy before each: services go through the proxies, the judge does not."""

from __future__ import annotations

from pathlib import Path

from deploy.local import ports
from deploy.local.kafka import EmbeddedKafka


class ProxiedKafka(EmbeddedKafka):
    """A broker with a second listener, for which it tells clients the port of a proxy."""

    def __init__(self, state_dir: Path, proxied_port: int, proxy_port: int) -> None:
        """`proxied_port` is where it listens for the proxy, `proxy_port` is what it tells clients of that listener."""
        super().__init__(state_dir)
        self._proxied_port = proxied_port
        self._proxy_port = proxy_port

    def _configure(self, data: Path, controller_port: int) -> Path:
        path = super()._configure(data, controller_port)
        lines = []
        for line in path.read_text("utf-8").splitlines():
            name, _, value = line.partition("=")
            match name:
                case "listeners":
                    value += f",PROXIED://{ports.HOST}:{self._proxied_port}"
                case "advertised.listeners":
                    value += f",PROXIED://{ports.HOST}:{self._proxy_port}"
                case "listener.security.protocol.map":
                    value += ",PROXIED:PLAINTEXT"
            lines.append(f"{name}={value}\n")
        path.write_text("".join(lines), "utf-8")
        return path
