"""The released records in `tests/corpus`, as they would be read from Kafka and from a store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "corpus"
STATE_PREFIX = "recipient_state."


@dataclass(frozen=True)
class Example:
    """One released record."""

    name: str
    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]

    @property
    def type(self) -> str:
        """Its CloudEvents type."""
        return dict(self.headers)["ce_type"].decode()


def examples() -> list[Example]:
    """Every record of the corpus."""
    found = []
    for path in sorted(FOLDER.glob("v*/*.headers.json")):
        about = json.loads(path.read_text(encoding="utf-8"))
        value = path.with_name(path.name.replace(".headers.json", ".json")).read_bytes()
        headers = tuple((name, text.encode()) for name, text in about["headers"])
        name = f"{path.parent.name}/{path.name.removesuffix('.headers.json')}"
        found.append(Example(name, about["topic"], about["key"].encode(), value, headers))
    return found


def states() -> dict[str, bytes]:
    """Every stored state of the corpus by name."""
    return {f"{path.parent.name}/{path.stem}": path.read_bytes() for path in sorted(FOLDER.glob(f"v*/{STATE_PREFIX}*"))}


def value_files() -> set[str]:
    """The names of all files that hold a value, to see that none is forgotten."""
    paths = [path for path in FOLDER.glob("v*/*.json") if not path.name.endswith(".headers.json")]
    return {f"{path.parent.name}/{path.stem}" for path in paths}
