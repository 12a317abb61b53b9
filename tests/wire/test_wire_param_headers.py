"""Arguments repeated as headers; the SDK is the oracle."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from mooring.wire.jsonrpc import fields
from mooring.wire.param_headers import InvalidMarks, disagreement, marked, outgoing

NAMES = st.sampled_from(["Region", "region", "X.1", "", "a b", "Zoë", 5, None])
LEAVES = st.fixed_dictionaries(
    {}, optional={"type": st.sampled_from(["string", "integer", "boolean", "number", "null", 7]), "x-mcp-header": NAMES}
)


def nested(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(st.sampled_from("abc"), schemas, max_size=2)
    several = st.lists(schemas, max_size=2)
    optional = {"properties": properties, "items": schemas, "anyOf": several, "$defs": properties, "default": schemas}
    return st.fixed_dictionaries({"type": st.just("object")}, optional=optional)


SCHEMAS = st.recursive(LEAVES, nested, max_leaves=6)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just([1]), st.just({"a": "x"}))
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "deep": {"type": "object", "properties": {"er": {"type": "string", "x-mcp-header": "Deeper"}}},
        "plain": {"type": "string"},
    },
}
MARKS = marked(SCHEMA)


def params(arguments: Any) -> bytes:
    return json.dumps({"name": "t", "arguments": arguments}).encode()


def lower(headers: dict[str, str]) -> dict[bytes, bytes]:
    return {name.lower().encode(): value.encode() for name, value in headers.items()}


@given(st.one_of(SCHEMAS, st.none(), st.integers()))
def test_marks_are_read_and_refused_as_the_sdk_does(schema: Any) -> None:
    try:
        mine = {mark.path: mark.header.removeprefix("Mcp-Param-") for mark in marked(schema)}
    except InvalidMarks:
        assert inbound.find_invalid_x_mcp_header(schema) is not None
    else:
        assert inbound.find_invalid_x_mcp_header(schema) is None
        assert mine == inbound.x_mcp_header_map(schema)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("region", "count", "dry", "deep", "plain"), VALUES)))
def test_the_headers_of_an_argument_are_those_of_the_sdk_and_agree_with_it(arguments: Any) -> None:
    made = outgoing(MARKS, params(arguments), {})
    assert made == inbound.mcp_param_headers(inbound.x_mcp_header_map(SCHEMA), arguments)
    assert disagreement(MARKS, params(arguments), lower(made)) is None
    for name in made:
        less = {other: value for other, value in made.items() if other != name}
        assert disagreement(MARKS, params(arguments), lower(less)) is not None


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {"Mcp-Param-Region": "us"}),
        ({"region": "eu"}, {}),
        ({"region": None}, {"Mcp-Param-Region": "null"}),
        ({}, {"Mcp-Param-Region": ""}),
        ({"region": ["eu"]}, {"Mcp-Param-Region": "['eu']"}),
        ({"region": "42.0"}, {"Mcp-Param-Region": "42"}),
        ({"region": "é"}, {"Mcp-Param-Region": "=?base64?!!?="}),
        ({"count": 42}, {"Mcp-Param-Count": "42.5"}),
        ({"dry": True}, {"Mcp-Param-Dry": "True"}),
        ({"region": "\ud800"}, {"Mcp-Param-Region": "?"}),
    ],
)
def test_a_header_that_does_not_say_what_the_body_says_is_a_mismatch(arguments: Any, headers: dict[str, str]) -> None:
    answer = disagreement(MARKS, params(arguments), lower(headers))
    assert answer is not None
    assert bytes(fields(answer.error)["code"]) == b"-32020"


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"count": 42.0}, {"Mcp-Param-Count": "42"}),
        ({"count": 42}, {"Mcp-Param-Count": "42.00"}),
        ({"count": 2**90}, {"Mcp-Param-Count": str(2**90)}),
        ({"region": ""}, {"Mcp-Param-Region": ""}),
        ({"region": "\ud800"}, {}),
        ({"plain": "x"}, {"Mcp-Param-Plain": "anything", "Mcp-Param-Unknown": "y"}),
    ],
)
def test_a_header_that_says_it_in_another_way_is_none(arguments: Any, headers: dict[str, str]) -> None:
    assert disagreement(MARKS, params(arguments), lower(headers)) is None


def test_what_no_header_can_say_is_not_passed_on() -> None:
    assert outgoing((), params({}), {b"mcp-param-other": b"caf\xe9"}) == {}


def test_parameters_that_nobody_here_knows_are_passed_on() -> None:
    headers = {b"mcp-param-other": b"x", b"mcp-param-region": b"forged", b"authorization": b"secret"}
    assert outgoing(MARKS, params({"region": "eu"}), headers) == {"mcp-param-other": "x", "Mcp-Param-Region": "eu"}
    assert outgoing((), params({}), headers) == {"mcp-param-other": "x", "mcp-param-region": "forged"}
