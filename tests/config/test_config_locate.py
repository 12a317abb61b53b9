"""Where a key stands in a text."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import example, given
from hypothesis import strategies as st

from mooring.config.locate import line_of, spans_of

TEXT = '''# comment with [brackets] and a = 1
title = "x # not a comment" # comment
multi = """
a = 1
[table]
""\\"" """""
literal = \'\'\'
b = 2
it''s\'\'\'\'

[a.'b c'."d\\"e"]  # header
key = [ # comment
  "one", "two",
  { three = 3 }, [4,
   5],
]
inline = { x = 1, y.z = [1, 2] }
[[list]]
n = 1
[[list]]
n = 2
[list.sub]
date = 2020-01-01T00:00:00Z
dotted . key = true
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("multi",), 3),
        (("literal",), 7),
        (("a",), 11),
        (("a", "b c", 'd"e'), 11),
        (("a", "b c", 'd"e', "key"), 12),
        (("a", "b c", 'd"e', "key", 1), 13),
        (("a", "b c", 'd"e', "key", 2, "three"), 14),
        (("a", "b c", 'd"e', "key", 3, 1), 15),
        (("a", "b c", 'd"e', "inline", "y", "z", 1), 17),
        (("list", 0, "n"), 19),
        (("list", 1, "n"), 21),
        (("dotted", "key"), None),
        (("a", "nothing"), 11),
        (("b",), None),
        ((), None),
    ],
)
def test_a_key_is_found_where_it_stands(path: tuple[str | int, ...], line: int | None) -> None:
    """R1: strings, comments, quoted and dotted keys, inline tables and lists do not mislead."""
    assert line_of(TEXT, path) == line


def test_spans_cover_headers_and_pairs() -> None:
    spans = spans_of("[a]\nx = [\n1]\ny = 2\n")
    assert [(span.path, span.first, span.last, span.header) for span in spans] == [
        (("a",), 1, 1, True),
        (("a", "x"), 2, 3, False),
        (("a", "y"), 4, 4, False),
    ]


@given(st.text(alphabet="[]{}=\"'#,.\\ \n\rab1"))
@example("a = [}")
@example("a")
def test_no_text_makes_it_fail(text: str) -> None:
    line_of(text, ("a", "b"))


KEYS = st.text(alphabet="ab-_ .=\"[]#'", min_size=1, max_size=4)
VALUES = st.recursive(
    st.one_of(st.integers(0, 9), st.booleans(), st.text(alphabet="a\n\"'#[]={}, ", max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=3))
def test_every_key_of_a_document_is_found(document: dict[str, Any]) -> None:
    """R1: whatever the document, its own writer's lines are found."""
    text = tomlkit.dumps(document)
    for path in paths(tomllib.loads(text)):
        line = line_of(text, path)
        assert line is not None
        last = path[-1]
        if isinstance(last, str) and last.isalpha():
            assert last in text.split("\n")[line - 1]


def paths(value: Any, prefix: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every key path whose keys need no escapes (those are found by their nearest ancestor)."""
    found = [prefix] if prefix else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += paths(inner, (*prefix, key))
    return found
