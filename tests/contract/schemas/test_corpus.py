"""What was released stays readable: every example of the corpus, with today's code and today's JSON Schemas."""

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import jsonschema
import msgspec
import pytest

from schemas import profile, records, state
from schemas.base import Record
from schemas.codec import RECORDS, decode, decode_state, encode, encode_state
from schemas.generate import EVENT_NAME, FOLDER, STATE_NAME
from schemas.topics import CATALOGUE
from tests.support import corpus

TOPICS = {topic.name: topic for topic in CATALOGUE}
EXAMPLES = {example.name: example for example in corpus.examples()}
STATES = corpus.states()
each_example = pytest.mark.parametrize("example", EXAMPLES.values(), ids=list(EXAMPLES))
each_state = pytest.mark.parametrize("value", STATES.values(), ids=list(STATES))


def validator(name: str) -> jsonschema.protocols.Validator:
    """The committed JSON Schema of a record, with its formats taken seriously."""
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(schema, format_checker=checker)


def schema_of(ce_type: str) -> str:
    """The name of the JSON Schema of a CloudEvents type."""
    return EVENT_NAME if ce_type in records.EVENT_TYPES else ce_type


@each_example
def test_a_released_record_decodes_and_loses_nothing(example: corpus.Example) -> None:
    """Today's code reads the record, and what it would write holds the same."""
    decoded = decode(TOPICS[example.topic], example.key, example.value, example.headers)
    assert json.loads(encode(decoded.record)) == json.loads(example.value)
    assert decoded.envelope.type == example.type
    assert decoded.envelope.time > 0


@each_state
def test_a_stored_state_decodes_and_loses_nothing(value: bytes) -> None:
    """A state that an older release wrote is read by today's code, and what it would write holds the same."""
    assert json.loads(encode_state(decode_state(value))) == json.loads(value)


@each_example
def test_a_released_record_is_valid(example: corpus.Example) -> None:
    """The committed JSON Schema accepts the record, also with a field that it does not know."""
    value = json.loads(example.value)
    validator(schema_of(example.type)).validate(value)
    validator(schema_of(example.type)).validate({**value, "a_later_field": [1]})


@each_state
def test_a_stored_state_is_valid(value: bytes) -> None:
    """The committed JSON Schema accepts the state."""
    validator(STATE_NAME).validate(json.loads(value))


@each_example
def test_the_code_ignores_a_field_of_a_later_release(example: corpus.Example) -> None:
    """A record with an unknown field reads as the record without it."""
    topic = TOPICS[example.topic]
    later = json.dumps({**json.loads(example.value), "a_later_field": {"deep": [1]}}).encode()
    plain = decode(topic, example.key, example.value, example.headers)
    assert decode(topic, example.key, later, example.headers).record == plain.record


@each_example
def test_the_schema_refuses_what_the_code_refuses(example: corpus.Example) -> None:
    """Without a required field, or with a wrong type in one, the JSON Schema refuses the value."""
    value = json.loads(example.value)
    check = validator(schema_of(example.type))
    for field in check.schema["required"]:
        assert not check.is_valid({name: item for name, item in value.items() if name != field}), field
        assert not check.is_valid({**value, field: [None]}), field


def test_no_file_is_left_out() -> None:
    """Each value in the corpus is a state or has its headers, so each is in the tests above."""
    assert corpus.value_files() == EXAMPLES.keys() | STATES.keys()


def test_every_record_type_is_in_the_corpus() -> None:
    """A type that is added needs an example."""
    assert {example.type for example in EXAMPLES.values()} == set(RECORDS)


def test_every_topic_is_in_the_corpus() -> None:
    """Each topic that carries records of the contract has an example; delay topics carry what `due` carries."""
    carried = {name for name, topic in TOPICS.items() if topic.types and not name.startswith("delay.")}
    assert {example.topic for example in EXAMPLES.values()} == carried


def test_each_record_type_has_an_example_of_only_what_it_must_have() -> None:
    """For each struct there is a value without any optional field: a default that goes is a broken contract."""
    for struct in {*RECORDS.values(), state.RecipientState}:
        required = {field.encode_name for field in msgspec.structs.fields(struct) if field.required}
        values = [json.loads(e.value) for e in EXAMPLES.values() if RECORDS[e.type] is struct]
        if struct is state.RecipientState:
            values = [json.loads(value) for value in STATES.values()]
        assert any(value.keys() == required for value in values), struct.__name__


def walk(value: Any, raw: Any) -> Iterator[tuple[str, str]]:
    """Each (struct, field) that stands in a JSON value, and each (enum, member)."""
    if isinstance(value, StrEnum):
        yield type(value).__name__, value.name
    elif isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            if field.encode_name in raw:
                yield type(value).__name__, field.encode_name
                yield from walk(getattr(value, field.name), raw[field.encode_name])
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, raw[key])
    elif isinstance(value, tuple):
        for item, raw_item in zip(value, raw, strict=True):
            yield from walk(item, raw_item)


def test_every_field_and_every_enum_value_is_in_the_corpus() -> None:
    """A field or an enum value that is added needs an example."""
    wanted, found = set(), set()
    for module in (profile, records, state):
        for cls in vars(module).values():
            if not isinstance(cls, type) or cls.__module__ != module.__name__:
                continue
            if issubclass(cls, Record):
                wanted |= {(cls.__name__, field.encode_name) for field in msgspec.structs.fields(cls)}
            elif issubclass(cls, StrEnum) and cls is not records.EventType:
                wanted |= {(cls.__name__, member.name) for member in cls}
    for example in EXAMPLES.values():
        record = decode(TOPICS[example.topic], example.key, example.value, example.headers).record
        found |= set(walk(record, json.loads(example.value)))
    for value in STATES.values():
        found |= set(walk(decode_state(value), json.loads(value)))
    # The default of a step is left out when written; a missing state is `pending`.
    assert wanted - found == {("StepState", "PENDING")}
