"""JSON that people keep by hand: one entry comes and goes, everything else stays to the letter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config import jsonc
from mooring.export.json_text import drop, put

ENTRY = {"command": "mooring", "args": ["stdio"]}
HAND_WRITTEN = """// Zed settings
{
    "theme": "One Dark", // dark
    /* servers */
    "context_servers": {
        "other": { "command": "x", "args": ["//", "}"] }, // mine
        // more to come
    },
    "tabs": [1, 2],
}
"""


def test_an_entry_is_added_in_the_style_of_its_neighbours() -> None:
    assert (
        put(HAND_WRITTEN, ("context_servers", "mooring"), ENTRY)
        == """// Zed settings
{
    "theme": "One Dark", // dark
    /* servers */
    "context_servers": {
        "other": { "command": "x", "args": ["//", "}"] }, // mine
        "mooring": {
            "command": "mooring",
            "args": [
                "stdio"
            ]
        },
        // more to come
    },
    "tabs": [1, 2],
}
"""
    )


def test_taking_it_out_again_leaves_the_text_as_it_was() -> None:
    assert (
        drop(put(HAND_WRITTEN, ("context_servers", "mooring"), ENTRY), ("context_servers", "mooring")) == HAND_WRITTEN
    )


def test_an_entry_is_replaced_where_it_stands() -> None:
    text = '{\n\t"a": {\n\t\t"mooring": 1, // here\n\t\t"z": 2\n\t}\n}'
    assert put(text, ("a", "mooring"), {"x": 1}) == (
        '{\n\t"a": {\n\t\t"mooring": {\n\t\t\t"x": 1\n\t\t}, // here\n\t\t"z": 2\n\t}\n}'
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "a": {\n    "m": 1\n  }\n}\n'),
        ("{}", '{\n  "a": {\n    "m": 1\n  }\n}'),
        ("  { }\n", '  {\n    "a": {\n      "m": 1\n    }\n  }\n'),
        ('{"b": 1}', '{"b": 1, "a": {"m": 1}}'),
        ('{"a": {}}', '{"a": {\n  "m": 1\n}}'),
        ('{\n    "b": 1 // one\n}', '{\n    "b": 1, // one\n    "a": {\n        "m": 1\n    }\n}'),
        ('{\n  "a": {\n    // none yet\n  }\n}', '{\n  "a": {\n    // none yet\n    "m": 1\n  }\n}'),
        ('\ufeff{"b": 1}', '\ufeff{"b": 1, "a": {"m": 1}}'),
    ],
)
def test_every_kind_of_place_takes_an_entry(before: str, after: str) -> None:
    assert put(before, ("a", "m"), 1) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("{}", "{}"),
        ('{"a": {"n": 1}}', '{"a": {"n": 1}}'),
        ('{"a": {"m": 1}}', '{"a": {}}'),
        ('{"a": {"m": 1, "n": 2}}', '{"a": {"n": 2}}'),
        ('{"a": {"n": 2, "m": 1}}', '{"a": {"n": 2}}'),
        ('{"a": {"n": 2, "m": 1,}}', '{"a": {"n": 2,}}'),
        ('{\n  "a": {\n    "m": 1\n  }\n}', '{\n  "a": {}\n}'),
        ('{\n  "a": {\n    // keep\n    "m": 1\n  }\n}', '{\n  "a": {\n    // keep\n  }\n}'),
    ],
)
def test_an_entry_is_taken_out_with_its_comma(before: str, after: str) -> None:
    assert drop(before, ("a", "m")) == after


@pytest.mark.parametrize(
    "text", ["[]", '"a"', "{", '{"a"', '{"a" 1}', '{"a": }', '{"a": {', '{"a": 1 "b": 2}', "{,}", "{a: 1}"]
)
def test_what_is_no_json_is_refused_and_not_guessed(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|begin|end|table"):
        put(text, ("a", "m"), 1)


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(ValueError, match='"a" is no table'):
        put('{"a": 1}', ("a", "m"), 1)
    with pytest.raises(ValueError, match="nothing"):
        put("{}", (), 1)


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(names, values, max_size=4)
layouts = st.sampled_from([None, 2, 4, "\t"])


@given(documents, st.dictionaries(names, values, max_size=3), values, layouts)
def test_only_the_entry_changes_whatever_the_document(
    document: dict[str, Any], others: dict[str, Any], value: Any, indent: int | str | None
) -> None:
    document["servers"] = others
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    there = put(text, ("servers", "mooring"), value)
    assert jsonc.loads(there) == {**document, "servers": {**others, "mooring": value}}
    assert put(there, ("servers", "mooring"), value) == there or indent is None
    gone = drop(there, ("servers", "mooring"))
    assert jsonc.loads(gone) == {**document, "servers": {k: v for k, v in others.items() if k != "mooring"}}


@given(st.text(alphabet='{}[]":,/* \n\\ab1', max_size=40))
def test_any_text_gives_a_text_or_an_error(text: str) -> None:
    for edit in (lambda: put(text, ("a", "b"), 1), lambda: drop(text, ("a", "b"))):
        try:
            edit()
        except ValueError:
            continue
