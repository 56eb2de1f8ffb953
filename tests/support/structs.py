"""Hypothesis strategies for any record of the contract, made from the types of its fields."""

from __future__ import annotations

import types
import typing
from enum import StrEnum
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec
from hypothesis import strategies as st

from schemas.codec import NUMBER_LIMIT

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""What JSON can hold: no lone surrogates."""
integers = st.integers(-(2**63), 2**63 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def structs(cls: type[_Struct]) -> st.SearchStrategy[_Struct]:
    """Any value of a record's type; a recipient is never empty, since it is the key."""
    hints = typing.get_type_hints(cls)
    given = {
        field: texts.filter(bool) if field == "recipient" else of_type(hints[field]) for field in cls.__struct_fields__
    }
    return st.builds(cls, **given)


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's type."""
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: texts,
        int: st.integers(-NUMBER_LIMIT, NUMBER_LIMIT),
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        UUID: st.uuids(),
        Any: json_values,
        types.NoneType: st.none(),
    }
    if hint in simple:
        return simple[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(of_type, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(texts, of_type(arguments[1]), max_size=3)
    if issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    assert issubclass(hint, msgspec.Struct), hint
    return structs(hint)
