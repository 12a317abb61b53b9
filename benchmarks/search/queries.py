"""What is asked: the labelled queries of ``queries.toml``, and those that a checkout of Docker's catalog gives.

Of Docker's catalog: names are its titles; typos are the same with one mistake each, made by a fixed seed; tasks are the
first sentences of its tool descriptions that have no word of the entry's name in them. The tools themselves are held
out: the index does not have them.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from benchmarks.search.corpus import SEED
from mooring.catalog.entry import Entry
from mooring.catalog.words import NOISE, compact, pieces, words

THIRDS = ("names", "typos", "tasks")


class Query(msgspec.Struct, frozen=True):
    """A question, and the ids that answer it."""

    third: str
    text: str
    want: frozenset[str]


def labelled() -> list[Query]:
    """The queries written by hand."""
    tables = tomllib.loads(Path(__file__).with_name("queries.toml").read_text("utf-8"))
    return [Query(third, text, frozenset(want)) for third in THIRDS for text, want in tables[third].items()]


def of_docker(entries: Iterable[Entry]) -> list[Query]:
    """The queries that the entries of Docker's catalog give."""
    there = list(entries)
    named: dict[str, set[str]] = {}
    for entry in there:
        for name in (_title(entry), entry.own_name):
            named.setdefault(compact(name), set()).add(entry.id)
    choose = random.Random(SEED)
    found: list[Query] = []
    for entry in there:
        title = _title(entry)
        want = frozenset(named[compact(title)])
        found.append(Query("names", title, want))
        if (wrong := _mistaken(title, choose)) is not None:
            found.append(Query("typos", wrong, want))
        found += (Query("tasks", text, frozenset((entry.id,))) for text in _tasks(entry))
    return found


def without_tools(entries: Iterable[Entry]) -> list[Entry]:
    """The entries as the index gets them."""
    return [msgspec.structs.replace(entry, tools=()) for entry in entries]


def _title(entry: Entry) -> str:
    return re.sub(r"\s*\((Archived|Reference)\)", "", entry.name)


def _mistaken(title: str, choose: random.Random) -> str | None:
    """The title with one mistake in its longest word, not in the first letter."""
    longest = max(words(title), key=len, default="")
    if len(longest) < 4:
        return None
    at = choose.randrange(1, len(longest) - 1)
    match choose.randrange(4):
        case 0:
            wrong = longest[:at] + longest[at + 1 :]
        case 1:
            wrong = longest[:at] + longest[at] + longest[at:]
        case 2:
            wrong = longest[:at] + longest[at + 1] + longest[at] + longest[at + 2 :]
        case _:
            wrong = longest[:at] + choose.choice("aeiourstn") + longest[at + 1 :]
    return title.lower().replace(longest, wrong, 1)


def _tasks(entry: Entry) -> list[str]:
    own = {word for name in (entry.name, entry.own_name) for word in (*words(name), *pieces(name))} - NOISE
    found: dict[str, None] = {}
    for tool in entry.tools:
        sentence = re.split(r"(?<=[.!?])\s|\n", tool.description.strip())[0]
        if 4 <= len(words(sentence)) <= 30 and not own & set(words(sentence)):
            found[sentence] = None
    return list(found)
