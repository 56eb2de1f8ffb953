"""Write the JSON Schemas of the contract to `schemas/json/`, or check that the files there are up to date.

    python -m schemas.generate            # writes what differs
    python -m schemas.generate --check    # names the files that differ and ends with 1

The structs are the source. Descriptions are their docstrings and those below their fields, so a reader in another
language sees what a reader of the code sees. The content model is open: an unknown field is no error, for a reader of
an old schema meets the fields of a new one.
"""

import argparse
import ast
import inspect
import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from schemas import profile, records, state
from schemas.base import Record
from schemas.codec import RECORDS
from schemas.reasons import Reason

FOLDER = Path(__file__).parent / "json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
EVENT_NAME = "rung.delivery_event"
STATE_NAME = "recipient_state"


def documents() -> dict[str, str]:
    """Every schema file's name and text."""
    named: dict[str, type[Record]] = {
        name: struct for name, struct in RECORDS.items() if struct is not records.DeliveryEvent
    }
    schemas = {name: _document(name, struct) for name, struct in named.items()}
    event = _document(EVENT_NAME, records.DeliveryEvent)
    event["x-ce-types"] = [str(name) for name in records.EventType]
    event["properties"]["reason"]["x-known-values"] = [str(reason) for reason in Reason]
    schemas[EVENT_NAME] = event
    schemas[STATE_NAME] = _document(STATE_NAME, state.RecipientState)
    return {
        f"{name}.schema.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas.items()
    }


def drifted(folder: Path = FOLDER) -> list[str]:
    """The names of the files that are absent, differ from the structs, or belong to no record any more."""
    wanted = documents()
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def write(folder: Path = FOLDER) -> list[str]:
    """Bring the folder up to date and return the names of the files that changed."""
    folder.mkdir(exist_ok=True)
    changed, wanted = drifted(folder), documents()
    for name in changed:
        if name in wanted:
            (folder / name).write_text(wanted[name], encoding="utf-8")
        else:
            (folder / name).unlink()
    return changed


def _document(name: str, struct: type[Record]) -> dict[str, Any]:
    (_,), components = msgspec.json.schema_components([struct])
    classes = _classes()
    for title, schema in components.items():
        _describe(schema, classes[title])
    root = components.pop(struct.__name__)
    root["title"] = name
    document: dict[str, Any] = {"$schema": DIALECT, "$id": f"urn:rung:schema:{name}", **root}
    if components:
        document["$defs"] = dict(sorted(components.items()))
    return document


def _describe(schema: dict[str, Any], cls: type[Record] | type[StrEnum]) -> None:
    schema["description"] = inspect.cleandoc(cls.__doc__ or "")
    docs = _member_docs(cls)
    if issubclass(cls, StrEnum):
        # In the order of the code, and as a type of its own for readers that do not infer it from the values.
        schema["type"] = "string"
        schema["enum"] = [str(member) for member in cls]
        told = [f"`{member}`: {docs[member.name]}" for member in cls if member.name in docs]
        schema["description"] = "\n".join([schema["description"], *told])
        return
    for field in msgspec.structs.fields(cls):
        if field.name in docs:
            schema["properties"][field.encode_name]["description"] = docs[field.name]


def _classes() -> dict[str, type[Record] | type[StrEnum]]:
    modules: tuple[ModuleType, ...] = (profile, records, state)
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Record | StrEnum)
    }


def _member_docs(cls: type) -> dict[str, str]:
    """The strings that stand below the fields of a class: Python keeps them in the source alone."""
    (definition,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - it is the source of a class
    docs = {}
    for line, below in pairwise(definition.body):
        match line, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = " ".join(text.split())
    return docs


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check; the number is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m schemas.generate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; end with 1 if a file is out of date")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    names = drifted(given.folder) if given.check else write(given.folder)
    for name in names:
        print(f"{name}: {'out of date' if given.check else 'written'}")
    if given.check and names:
        print("Run `python -m schemas.generate` and commit what it writes.")
    return int(given.check and bool(names))


if __name__ == "__main__":
    sys.exit(main())
