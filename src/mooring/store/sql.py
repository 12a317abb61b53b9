"""SQL kept in SQL files: named blocks of queries, numbered migrations. Pure but for reading the package's own files.

A block begins with ``-- name: the_name``; a statement ends with ``;`` at the end of a line; all statements of a block
run in one transaction with the same named parameters. Called by ``store.sqlite``.
"""

from __future__ import annotations

import os

_HERE = os.path.dirname(__file__)
_NAME = "-- name: "

Statements = tuple[str, ...]


def statements(text: str) -> Statements:
    """Cut a script into its statements."""
    parts = (part.strip() for part in text.split(";\n"))
    return tuple(part for part in parts if part)


def blocks(text: str) -> dict[str, Statements]:
    """The named blocks of one file; what stands before the first name is its comment. Raises ValueError when a name
    comes twice or has no statement."""
    named: dict[str, Statements] = {}
    for block in ("\n" + text).split("\n" + _NAME)[1:]:
        name, _, body = block.partition("\n")
        name, found = name.strip(), statements(body + "\n")
        if name in named or not found:
            raise ValueError(f"query {name!r} is defined twice or empty")
        named[name] = found
    return named


def load_queries() -> dict[str, Statements]:
    """All named queries of ``store/queries``."""
    named: dict[str, Statements] = {}
    for file in sorted(_files("queries")):
        for name, found in blocks(_text("queries", file)).items():
            if name in named:
                raise ValueError(f"query {name!r} is defined twice")
            named[name] = found
    return named


def migrations() -> dict[int, str]:
    """Schema version -> file name, of all ``store/migrations/NNNN_what.sql``, ascending."""
    return {int(file[:4]): file for file in sorted(_files("migrations"))}


def load_migration(file: str) -> Statements:
    """The statements of one migration."""
    return statements(_text("migrations", file))


def _files(folder: str) -> list[str]:
    return [file for file in os.listdir(os.path.join(_HERE, folder)) if file.endswith(".sql")]


def _text(folder: str, file: str) -> str:
    with open(os.path.join(_HERE, folder, file), encoding="utf-8") as source:
        return source.read()
