"""Where a key stands in TOML text. Pure; called when there is an error to show, and by ``config.edit``.

The scanner knows just enough TOML: tables, arrays of tables, dotted and quoted keys, strings of all four kinds,
comments, inline tables and arrays. It expects text that ``tomllib`` accepts and never raises on any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from mooring.config.schema_base import Path


def line_of(text: str, path: Path) -> int | None:
    """The line (from 1) of ``path``, or of its nearest ancestor that the text shows; None when it shows none."""
    lines = _lines(text)
    for length in range(len(path), 0, -1):
        if (line := lines.get(path[:length])) is not None:
            return line
    return None


@lru_cache(maxsize=8)
def _lines(text: str) -> Mapping[Path, int]:
    """Several problems are in the same few texts."""
    return _Scanner(text).scan()


class Span(msgspec.Struct, frozen=True):
    """A header or a pair, with the lines it covers (from 1, both included)."""

    path: Path
    first: int
    last: int
    header: bool


def spans_of(text: str) -> list[Span]:
    """Every header and every pair outside inline tables, in order."""
    scanner = _Scanner(text)
    scanner.scan()
    return scanner.spans


class _Scanner:
    """One pass over a text, collecting key path -> line of its first appearance."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.lines: dict[Path, int] = {}
        self.tables: dict[Path, int] = {}
        self.spans: list[Span] = []

    def scan(self) -> dict[Path, int]:
        """Read everything."""
        table: Path = ()
        while self._skip(" \t\r\n"):
            line, header = self.line, self._peek() == "["
            if header:
                table = path = self._header()
            else:
                path = self._pair(table)
            self.spans.append(Span(path, line, self.line, header))
        return self.lines

    def _peek(self, count: int = 1) -> str:
        return self.text[self.at : self.at + count]

    def _step(self, count: int = 1) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count

    def _skip(self, blanks: str) -> bool:
        """Pass blanks and comments; False at the end of the text."""
        while self.at < len(self.text):
            if self._peek() == "#":
                end = self.text.find("\n", self.at)
                self._step((end if end >= 0 else len(self.text)) - self.at)
            elif self._peek() in blanks:
                self._step()
            else:
                return True
        return False

    def _note(self, path: Path, line: int) -> None:
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], line)

    def _header(self) -> Path:
        line, brackets = self.line, 2 if self._peek(2) == "[[" else 1
        self._step(brackets)
        table = self._key()
        self._step(brackets)
        if brackets == 2:
            count = self.tables[table] = self.tables.get(table, -1) + 1
            table = (*table, count)
        self._note(table, line)
        return table

    def _key(self) -> Path:
        """A dotted key, up to what ends it."""
        parts: list[str] = []
        while self._skip(" \t"):
            char = self._peek()
            if char in "\"'":
                parts.append(self._string())
            elif char == ".":
                self._step()
            elif char in "=]\r\n,}":
                break
            else:
                start = self.at
                while self._peek() and self._peek() not in " \t\r\n.=]#,}":
                    self._step()
                parts.append(self.text[start : self.at])
        return tuple(parts)

    def _string(self) -> str:
        """A string of any kind; escapes are kept as they are, except in the keys that people write."""
        quote = self._peek()
        fence = quote * 3 if self._peek(3) == quote * 3 else quote
        self._step(len(fence))
        start = self.at
        while self.at < len(self.text) and self._peek(len(fence)) != fence:
            self._step(2 if quote == '"' and self._peek() == "\\" else 1)
        content = self.text[start : self.at]
        self._step(len(fence))
        while len(fence) == 3 and self._peek() == quote:
            self._step()
        return content.replace('\\"', '"').replace("\\\\", "\\") if quote == '"' else content

    def _pair(self, table: Path) -> Path:
        line = self.line
        path = (*table, *self._key())
        self._note(path, line)
        if self._peek() == "=":
            self._step()
            self._skip(" \t")
            self._value(path)
        else:
            self._step()
        return path

    def _value(self, path: Path) -> None:
        char = self._peek()
        if char == "{":
            self._inline(path)
        elif char == "[":
            self._array(path)
        elif char and char in "\"'":
            self._string()
        else:
            while self._peek() and self._peek() not in "\r\n,]}#":
                self._step()

    def _inline(self, path: Path) -> None:
        self._step()
        while self._skip(" \t\r\n,") and self._peek() != "}":
            self._pair(path)
        self._step()

    def _array(self, path: Path) -> None:
        self._step()
        index = 0
        while self._skip(" \t\r\n,") and self._peek() != "]":
            self._note((*path, index), self.line)
            before = self.at
            self._value((*path, index))
            if self.at == before:
                self._step()
            index += 1
        self._step()
