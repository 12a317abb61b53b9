"""Entries in files of one's own: TOML in our form (``catalog.own_toml``), or JSON: a server.json or a list of them.

``path`` is a file, or a folder whose ``*.toml`` and ``*.json`` are read in the order of their names.
"""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from mooring.catalog import own_toml, server_json
from mooring.catalog.entry import Entry
from mooring.catalog.source import Batch, Get
from mooring.config.plan import CatalogSource
from mooring.errors import ConfigError

_KINDS = (".toml", ".json")


class Files:
    """``kind = "files"``."""

    kind = "files"
    origins = ()
    incremental = False

    async def read(self, origin: CatalogSource, mark: str, get: Get) -> AsyncIterator[Batch]:
        """See ``catalog.source.SourceKind``."""
        batch = await asyncio.to_thread(_read, origin, mark)
        yield batch


def _read(origin: CatalogSource, mark: str) -> Batch:
    root = Path(origin.path)
    if not root.exists():
        raise ConfigError(f'The catalog source "{origin.name}" has nothing to read: {root} does not exist.')
    found = [root] if root.is_file() else sorted(file for file in root.iterdir() if file.suffix in _KINDS)
    stamp = ";".join(f"{file.name} {file.stat().st_mtime_ns} {file.stat().st_size}" for file in found)
    if stamp == mark and mark:
        return Batch(unchanged=True, mark=mark)
    entries: list[Entry] = []
    problems: list[str] = []
    for file in found:
        try:
            for name, one in _records(file):
                try:
                    entries.append(_entry(name, one, origin.name))
                except ValueError as error:
                    problems.append(f"{file.name}: {name}: {error}")
        except (OSError, ValueError) as error:  # both decoders' errors are ValueErrors
            problems.append(f"{file.name}: {error}")
    return Batch(entries=entries, problems=problems, mark=stamp)


def _records(file: Path) -> Iterator[tuple[str, Any]]:
    """The records of a file, by id; those of JSON files have their name inside."""
    text = file.read_text("utf-8-sig")  # editors on Windows write such a mark in front
    if file.suffix == ".toml":
        yield from tomllib.loads(text).items()
        return
    content: Any = msgspec.json.decode(text)
    if isinstance(content, dict):
        wrapped: Any = cast("dict[str, Any]", content).get("servers", [content])
        content = wrapped
    for number, one in enumerate(cast("list[Any]", content) if isinstance(content, list) else [content]):
        yield f"#{number + 1}", one


def _entry(name: str, record: Any, source: str) -> Entry:
    if not isinstance(record, dict):
        raise ValueError("it is no table")
    table = cast("dict[str, Any]", record)
    if not name.startswith("#"):
        return own_toml.parse(name, table, source)
    if "server" in table:
        return server_json.parse_listed(table, source)[0]
    return server_json.parse(table, source)
