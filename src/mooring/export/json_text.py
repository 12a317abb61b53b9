"""One entry put into, or taken out of, JSON text that people and programs keep by hand. Pure.

Comments, trailing commas, order, indentation and everything else stay as they are: only the lines of the entry change.
Called by ``export.documents``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)*")
_STRING = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,\]}/]+")
_NESTED = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|[\[\]{}]', re.DOTALL)
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\n]*|/\*(?:[^*\n]|\*(?!/))*\*/[ \t]*(?=\n))?")


class Member(msgspec.Struct, frozen=True):
    """One ``"name": value``: where it begins, and where its value does and ends."""

    name: str
    start: int
    value: int
    end: int


class Table(msgspec.Struct, frozen=True):
    """One ``{...}``: its braces, its members, and its trailing comma (-1: none)."""

    start: int
    end: int
    members: tuple[Member, ...]
    comma: int = -1

    def get(self, name: str) -> Member | None:
        """The member of that name; of several the last, which is the one that counts."""
        return next((member for member in reversed(self.members) if member.name == name), None)


def put(text: str, path: Sequence[str], value: Any) -> str:
    """``text`` with ``value`` at ``path``, in place of another. Raises ValueError when ``text`` is not JSON, or when
    something on the way is no table."""
    if not text.strip():
        text = "{}\n"
    table = _root(text)
    for depth, name in enumerate(path):
        member = table.get(name)
        if member is None:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _inserted(text, table, name, value)
        if depth == len(path) - 1:
            return text[: member.value] + _written(value, _indent(text, member.start), _unit(text)) + text[member.end :]
        table = _below(text, member)
    raise ValueError("there is nothing to put")


def drop(text: str, path: Sequence[str]) -> str:
    """``text`` without what stands at ``path``; as it is when nothing does. Raises ValueError as ``put`` does."""
    if not text.strip():
        return text
    table = _root(text)
    for name in path[:-1]:
        member = table.get(name)
        if member is None:
            return text
        table = _below(text, member)
    member = table.get(path[-1])
    return text if member is None else _removed(text, table, member)


def _root(text: str) -> Table:
    start = _BLANK.match(text.removeprefix("\ufeff"), 0)
    at = (start.end() if start else 0) + text.startswith("\ufeff")
    if text[at : at + 1] != "{":
        raise ValueError("it does not begin with a table")
    return _table(text, at)


def _below(text: str, member: Member) -> Table:
    if text[member.value] != "{":
        raise ValueError(f'"{member.name}" is no table')
    return _table(text, member.value)


def _table(text: str, start: int) -> Table:
    members: list[Member] = []
    comma = -1
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        key = _STRING.match(text, at)
        if key is None:
            raise ValueError(f"a name is expected at character {at}")
        colon = _skip(text, key.end())
        if text[colon : colon + 1] != ":":
            raise ValueError(f'":" is expected at character {colon}')
        value = _skip(text, colon + 1)
        end = _end(text, value)
        members.append(Member(json.loads(key[0], strict=False), at, value, end))
        at = _skip(text, end)
        comma = at if text[at : at + 1] == "," else -1
        if comma >= 0:
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "}":
            raise ValueError(f'"," or "}}" is expected at character {at}')
    return Table(start, at, tuple(members), comma)


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _end(text: str, at: int) -> int:
    """Where the value that begins at ``at`` ends."""
    if text[at : at + 1] not in ("{", "["):
        found = _STRING.match(text, at) or _SCALAR.match(text, at)
        if found is None:
            raise ValueError(f"a value is expected at character {at}")
        return found.end()
    depth = 0
    for token in _NESTED.finditer(text, at):
        depth += (token[0] in "{[") - (token[0] in "}]")
        if depth == 0:
            return token.end()
    raise ValueError(f"what begins at character {at} does not end")


def _inserted(text: str, table: Table, name: str, value: Any) -> str:
    unit = _unit(text)
    if not table.members:
        outer = _indent(text, table.start)
        member = f"{outer}{unit}{json.dumps(name)}: {_written(value, outer + unit, unit)}"
        inside = text[table.start + 1 : table.end].rstrip()
        return f"{text[: table.start + 1]}{inside}\n{member}\n{outer}{text[table.end :]}"
    last = table.members[-1]
    if "\n" not in text[table.start : last.start]:
        member = f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        return f"{text[: last.end]}, {member}{text[last.end :]}"
    indent = _indent(text, last.start)
    member = f"\n{indent}{json.dumps(name)}: {_written(value, indent, unit)}"
    if table.comma >= 0:
        after = _line_rest(text, table.comma + 1)
        return f"{text[:after]}{member},{text[after:]}"
    after = _line_rest(text, last.end)
    return f"{text[: last.end]},{text[last.end : after]}{member}{text[after:]}"


def _line_rest(text: str, at: int) -> int:
    """After the comment that follows on the same line, which belongs to what stands before it."""
    rest = _REST_OF_LINE.match(text, at)
    comment = rest is not None and rest[0].strip()
    return rest.end() if rest and comment else at


def _removed(text: str, table: Table, member: Member) -> str:
    position = table.members.index(member)
    following = _skip(text, member.end)
    if position < len(table.members) - 1:
        # Up to the next member, whose own indentation takes the place of this one's.
        return text[: member.start] + text[_skip(text, following + 1) :]
    before = table.members[position - 1].end if position else table.start + 1
    after = following + 1 if table.comma >= 0 else member.end
    comma = text.find(",", before, member.start) if position and table.comma < 0 else -1
    kept = text[before : member.start] if comma < 0 else text[before:comma] + text[comma + 1 : member.start]
    rest = text[_line_rest(text, after) :]
    kept = kept.rstrip()
    if not position and not kept and not rest[: rest.find("}")].strip():
        rest = rest.lstrip()
    return text[:before] + kept + rest


def _written(value: Any, indent: str, unit: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", f"\n{indent}")


def _indent(text: str, at: int) -> str:
    """The white space that begins the line of ``at``."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _unit(text: str) -> str:
    """What one level is indented by in this text."""
    found = re.search(r"\{[^\S\n]*\n([ \t]+)\S", text)
    return found[1] if found else "  "
