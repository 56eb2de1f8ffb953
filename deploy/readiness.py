"""When a started system works: every service says of itself, on `/readyz`, that it has its share of the work."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_SECONDS = 5.0


class Readiness:
    """Asks a system's parts until all of them are ready at the same time."""

    def __init__(self, metrics: Mapping[str, str], api: str | None = None) -> None:
        """`metrics` are the addresses of the services' metrics by name, `api` is the HTTP API's if there is one."""
        self._urls = {name: f"{url.removesuffix('/metrics')}/readyz" for name, url in metrics.items()}
        if api is not None:
            self._urls["the HTTP API"] = f"{api}/readyz"
        self._open = dict(self._urls)

    def missing(self) -> list[str]:
        """What is not ready yet, by name and with its reason; empty when everything is."""
        found = {name: reason for name, url in self._open.items() if (reason := _reason(url)) is not None}
        if not found and len(self._open) < len(self._urls):
            # Each was ready once. A group may have shared out its work again since.
            found = {name: reason for name, url in self._urls.items() if (reason := _reason(url)) is not None}
        self._open = {name: self._urls[name] for name in found} if found else dict(self._urls)
        return [f"{name} ({reason})" for name, reason in sorted(found.items())]


def _reason(url: str) -> str | None:
    """Why a service is not ready; None if it is."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS):  # noqa: S310 - an address of our own
            return None
    except urllib.error.HTTPError as error:
        try:
            answer = json.loads(error.read())
            return str(answer.get("reason") or answer.get("title") or error.code)
        except (OSError, ValueError, AttributeError):
            return str(error.code)
    except OSError:
        return "no answer"


def refusal(log: Path) -> str | None:
    """Why a service was not let start, as the last such line of its log says; None if there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        if '"start_refused"' in line:
            try:
                return str(json.loads(line)["reason"])
            except (ValueError, KeyError, TypeError):
                return None
    return None
