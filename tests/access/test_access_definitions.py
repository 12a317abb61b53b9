"""Definitions of tools: what counts, and how a difference reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.access.definitions import PARTS, canonical, changed_parts, difference, fingerprint, former_name
from mooring.nouns import Item

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
TOOLS = st.dictionaries(st.sampled_from([*PARTS, "_meta", "icons"]), VALUES)


def item(tool: Any) -> Item:
    return Item("t", json.dumps(tool).encode())


@given(TOOLS, TOOLS)
def test_equal_texts_mean_equal_definitions(one: dict[str, Any], two: dict[str, Any]) -> None:
    pinned = [{part: tool[part] for part in PARTS if part in tool} for tool in (one, two)]
    same = json.dumps(pinned[0], sort_keys=True) == json.dumps(pinned[1], sort_keys=True)
    before, after = canonical(item(one)), canonical(item(two))
    assert (before == after) is same
    assert (fingerprint(before) == fingerprint(after)) is same
    assert (difference(before, after) == "") is same


@given(TOOLS)
def test_the_order_of_members_and_what_is_not_pinned_change_nothing(tool: dict[str, Any]) -> None:
    other = {**dict(reversed(tool.items())), "_meta": {"x": 1}, "icons": []}
    assert canonical(item(tool)) == canonical(item(other))


@pytest.mark.parametrize("raw", [b"[1]", b"{", b'"x"', b"\xff"])
def test_what_cannot_be_read_is_pinned_as_it_is(raw: bytes) -> None:
    before = canonical(Item("t", raw))
    assert before == canonical(Item("t", raw))
    assert "raw" in changed_parts(before, canonical(Item("t", raw + b" x")))


def test_numbers_are_exact_and_lone_surrogates_are_no_obstacle() -> None:
    huge = [Item("t", b'{"inputSchema":{"maximum":%d}}' % (10**30 + n)) for n in (0, 1)]
    assert canonical(huge[0]) != canonical(huge[1])
    assert "\\ud800" in canonical(Item("t", b'{"description":"\\ud800"}'))


def test_a_difference_reads_line_by_line_and_nothing_hides_in_it() -> None:
    before = canonical(item({"name": "t", "description": "Reads a file", "inputSchema": {"type": "object"}}))
    after = canonical(item({"name": "t", "description": "Reads\u202e a file", "inputSchema": {"type": "object"}}))
    assert changed_parts(before, after) == ("description",)
    assert difference(before, after).splitlines() == [
        "--- pinned",
        "+++ now",
        "@@ -1,3 +1,3 @@",
        " {",
        '-  "description": "Reads a file",',
        '+  "description": "Reads\\u202e a file",',
        '   "inputSchema": {',
    ]
    assert difference(None, before).splitlines()[3] == "+{"


def test_a_tool_under_another_name_is_recognised() -> None:
    old = canonical(item({"name": "a", "title": "A", "inputSchema": {"type": "object"}}))
    new = canonical(item({"name": "b", "title": "B", "inputSchema": {"type": "object"}}))
    assert former_name(new, {"x": canonical(item({"name": "x"})), "a": old}) == "a"
    assert former_name(new, {}) is None
