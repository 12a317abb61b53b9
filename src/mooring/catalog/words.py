"""How the texts of entries and of queries become words. Pure; the same at indexing and at searching."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from mooring.catalog.entry import Entry

NOISE = frozenset(
    ("mcp", "server", "servers", "official", "remote", "archived", "reference", "modelcontextprotocol", "the")
)
"""Words of names that tell nothing apart."""
_HOSTS = frozenset(("com", "io", "org", "net", "app", "dev", "ai", "co", "github", "gitlab", "www", "api", "mcp"))
_TOOL_TEXT = 4000
"""Characters of tool texts that are indexed: enough for a hundred tools, and no page of prose."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SHORT = re.compile(r"[^aeiou][aeiou][^aeiouwxy]")
_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """The words of a text: lower case, without accents; anything but letters and digits separates."""
    if not text.isascii():
        text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return _WORD.findall(text.lower())


def pieces(name: str) -> list[str]:
    """The words of an identifier; capitals inside it separate too."""
    return words(_CAMEL.sub(" ", name))


def compact(text: str) -> str:
    """A name with nothing but its letters and digits, for "is this the same name"."""
    return "".join(words(text))


@lru_cache(100_000)
def stem(word: str) -> str:
    """A word without the endings that grammar puts on it. Crude: it needs to bring forms of one word together, not to
    be a word; both sides of every comparison went through it."""
    for ending, instead, rest in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= rest:
            word = word.removesuffix(ending) + instead
            break
    for ending, rest in _SUFFIXES:
        if word.endswith(ending) and len(word) - len(ending) >= rest:
            word = word.removesuffix(ending)
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]  # running: run
            elif _SHORT.fullmatch(word):
                word += "e"  # moving: move
            break
    return word.removesuffix("e") if len(word) > 4 else word


_ENDINGS = (
    ("ies", "y", 2),
    ("sses", "ss", 1),
    ("xes", "x", 2),
    ("ches", "ch", 2),
    ("shes", "sh", 2),
    ("ss", "ss", 1),
    ("us", "us", 1),
    ("is", "is", 1),
    ("s", "", 3),
)
"""Of these the first that fits: what it becomes, and how many letters have to be left."""
_SUFFIXES = (
    ("ations", 3),
    ("ation", 3),
    ("ment", 4),
    ("ing", 3),
    ("ion", 4),
    ("ed", 3),
    ("er", 4),
    ("or", 4),
    ("ly", 4),
    ("ate", 4),
)


def stems(text: str) -> str:
    """The stems of a text's words, in one line."""
    return " ".join(map(stem, words(text)))


class Indexed(msgspec.Struct, frozen=True):
    """What of an entry is searched."""

    compact: str
    """Its name, compact."""
    words: str
    """What it is called: words of its names, and the names in one word each."""
    names: str
    """The same as stems; so are those below."""
    labels: str
    description: str
    tools: str


def indexed(entry: Entry) -> Indexed:
    """The texts of an entry by which it is found."""
    own = entry.own_name or entry.id.partition("/")[2]
    space, _, last = own.rpartition("/")
    whose = [word for word in words(space) if word not in _HOSTS]
    people = "github" in words(space) or "gitlab" in words(space)
    titles = _telling([*words(entry.name), *pieces(entry.name), *words(last), *pieces(last)])
    joined = [_joined(entry.name), _joined(last)]
    names: dict[str, None] = dict.fromkeys([*titles, *joined, *([] if people else whose)])
    called = " ".join(name for name in names if name)
    labels = " ".join((*entry.categories, *entry.tags, *(whose if people else ())))
    tools = " ".join(f"{' '.join(pieces(tool.name))} {tool.description}" for tool in entry.tools)
    return Indexed(
        compact=_joined(entry.name) or compact(entry.name),
        words=called,
        names=stems(called),
        labels=stems(labels),
        description=stems(entry.description),
        tools=stems(tools[:_TOOL_TEXT]),
    )


def _telling(found: Iterable[str]) -> list[str]:
    return [word for word in found if word not in NOISE]


def _joined(name: str) -> str:
    return "".join(_telling(words(name)))
