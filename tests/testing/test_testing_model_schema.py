"""The smallest value of a schema satisfies it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mooring.testing.model.schema import smallest

Schema = dict[str, Any]

numbers = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={key: st.integers(-9, 0) for key in ("minimum", "exclusiveMinimum")}
    | {key: st.integers(3, 9) for key in ("maximum", "exclusiveMaximum")},
)
above = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={key: st.sampled_from([0, 1, 2.5]) for key in ("minimum", "exclusiveMinimum")},
)
below = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={key: st.sampled_from([0, -1, -2.5]) for key in ("maximum", "exclusiveMaximum")},
)
leaves = st.one_of(
    numbers,
    above,
    below,
    st.fixed_dictionaries({"type": st.just("string")}, optional={"minLength": st.integers(0, 3)}),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"]}, {"const": 5}, {"type": []}]),
    st.fixed_dictionaries({"enum": st.lists(st.integers(), min_size=1)}),
).filter(lambda schema: schema.get("type") != [])


def objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Objects, arrays and alternatives of what ``inner`` gives."""
    properties = st.dictionaries(st.sampled_from("abc"), inner)
    whole = properties.flatmap(
        lambda own: st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.just(own)},
            optional={"required": st.lists(st.sampled_from("abcd"), unique=True)},
        )
    )
    array = st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"minItems": st.integers(0, 2)})
    choice = st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)})
    return st.one_of(whole, array, choice)


@given(st.recursive(leaves, objects, max_leaves=8))
def test_it_is_valid(schema: Schema) -> None:
    Draft202012Validator(schema).validate(smallest(schema))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, {}),
        (True, {}),
        ({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]}, {"a": ""}),
        ({"oneOf": [{"enum": ["allow", "deny"]}, {"type": "null"}]}, "allow"),
        ({"$defs": {"x": {"const": 1}}, "type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}}, {}),
        (
            {"$defs": {"a/b": {"const": 1}}, "required": ["a"], "properties": {"a": {"$ref": "#/$defs/a~1b"}}},
            {"a": 1},
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": {"const": 1}}, "required": ["a"]},
                    {"properties": {"b": {"const": 2}}, "required": ["b"]},
                ]
            },
            {"a": 1, "b": 2},
        ),
        ({"anyOf": [{"required": ["a"]}], "properties": {"a": {"type": "boolean"}}}, {"a": False}),
    ],
)
def test_it_has_no_more_than_is_required(schema: Schema, value: Any) -> None:
    assert smallest(schema) == value


def test_a_schema_that_requires_itself_has_none() -> None:
    with pytest.raises(ValueError, match="requires itself"):
        smallest({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})
