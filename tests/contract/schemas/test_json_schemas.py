"""The committed JSON Schemas: up to date, valid, open, described, and in agreement with the code."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import generate, records
from schemas.codec import RECORDS, encode, encode_state
from schemas.state import RecipientState
from tests.support.structs import structs

SCHEMAS = {name: json.loads(text) for name, text in generate.documents().items()}


def test_the_committed_schemas_are_those_of_the_code() -> None:
    """A change of a struct is a change of its JSON Schema: run `python -m schemas.generate` and commit."""
    assert generate.drifted() == []


def test_there_is_one_schema_for_each_record() -> None:
    """Each record type has a schema of its own, the delivery events share one, and the state has one."""
    named = {name.removesuffix(".schema.json") for name in SCHEMAS}
    shared = {str(name) for name, struct in RECORDS.items() if struct is records.DeliveryEvent}
    assert named == set(RECORDS) - shared | {"rung.delivery_event", "recipient_state"}
    assert set(SCHEMAS["rung.delivery_event.schema.json"]["x-ce-types"]) == shared


def subschemas(schema: Any) -> list[dict[str, Any]]:
    """Every object inside a schema, itself included."""
    if isinstance(schema, list):
        return [found for item in schema for found in subschemas(item)]
    if not isinstance(schema, dict):
        return []
    return [schema, *(found for item in schema.values() for found in subschemas(item))]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid_described_and_open(name: str) -> None:
    """Each is JSON Schema 2020-12 with an id and a title, each type in it has a description, and none closes itself."""
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:rung:schema:{schema['title']}"
    assert name == f"{schema['title']}.schema.json"
    for part in [schema, *schema.get("$defs", {}).values()]:
        assert part["title"]
        assert part["description"].strip()
    assert all(part.get("additionalProperties") is not False for part in subschemas(schema))


def test_what_stands_below_a_field_describes_it() -> None:
    """A reader in another language sees the meaning and the unit that the code states."""
    event = SCHEMAS["rung.delivery_event.schema.json"]
    assert "escalation depth" in event["properties"]["depth"]["description"]
    hours = SCHEMAS["rung.put_recipient.schema.json"]["$defs"]["QuietHours"]["properties"]
    assert "HH:MM" in hours["from"]["description"]
    policy = SCHEMAS["rung.outcome.schema.json"]["$defs"]["UnknownPolicy"]["description"]
    assert "`hold`: Neither: do not send this step again." in policy


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_whatever_the_code_writes_is_valid(data: st.DataObject) -> None:
    """Any record and any state that the structs can hold is accepted by the JSON Schema."""
    struct = data.draw(st.sampled_from([*sorted(set(RECORDS.values()), key=lambda s: s.__name__), RecipientState]))
    record = data.draw(structs(struct))
    if isinstance(record, RecipientState):
        name, value = generate.STATE_NAME, encode_state(record)
    else:
        name = generate.EVENT_NAME if isinstance(record, records.DeliveryEvent) else record.TYPE
        value = encode(record)
    jsonschema.Draft202012Validator(SCHEMAS[f"{name}.schema.json"]).validate(json.loads(value))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the committed schemas."""
    return Path(shutil.copytree(generate.FOLDER, tmp_path / "json"))


def test_check_names_what_drifted_and_writing_repairs_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that differs, one that is absent and one too many are named; writing brings all back."""
    assert generate.main(["--check", "--folder", str(folder)]) == 0
    (folder / "rung.due.schema.json").write_text("{}")
    (folder / "rung.notify.schema.json").unlink()
    (folder / "rung.gone.schema.json").write_text("{}")
    drifted = ["rung.due.schema.json", "rung.gone.schema.json", "rung.notify.schema.json"]
    assert generate.main(["--check", "--folder", str(folder)]) == 1
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()[:3]] == drifted
    assert generate.main(["--folder", str(folder)]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == drifted
    assert generate.drifted(folder) == []


def test_writing_begins_with_no_folder(tmp_path: Path) -> None:
    """The first run creates the folder."""
    assert len(generate.write(tmp_path / "json")) == len(SCHEMAS)
    assert generate.drifted(tmp_path / "json") == []
