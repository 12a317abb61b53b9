"""Entries that people write by hand: the members of server.json and some more, in a table by id. Pure.

The form of ``catalog/starter.toml`` and of local files. Shorter ways to write, besides: text in ``packageArguments`` is
a positional argument with that value, ``environmentVariables`` may be a table by name, ``tools`` a table from name to
purpose. A key that no entry has is a mistake here, not something to keep.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from mooring.catalog.entry import (
    Argument,
    Entry,
    Icon,
    KeyValue,
    Login,
    Package,
    Repository,
    ToolNote,
    Transport,
    entry_id,
)
from mooring.catalog.residue import plain

_NOT_WRITTEN = frozenset(("id", "source", "residue", "form"))

Json = dict[str, Any]


def parse(id: str, table: Json, source: str) -> Entry:
    """The entry of one table. An ``id`` without a source gets this one. Raises ValueError."""
    own = id if "/" in id else entry_id(source, id)
    if own != own.lower():
        raise ValueError(f'the id "{id}" needs to be in lower case')
    full = {"name": id.rpartition("/")[2], **_written_out(table), "id": own, "source": source}
    entry = msgspec.convert(full, Entry)
    if unknown := sorted(_unknown(full, plain(entry))):
        raise ValueError(f"unknown key {', '.join(unknown)}")
    return entry


def render(entry: Entry) -> Json:
    """The table of an entry, written out."""
    table = plain(entry)
    return {key: value for key, value in table.items() if key not in _NOT_WRITTEN}


def _written_out(table: Json) -> Json:
    full = dict(table)
    if isinstance(tools := full.get("tools"), dict):
        full["tools"] = [{"name": name, "description": text} for name, text in cast("Json", tools).items()]
    if isinstance(packages := full.get("packages"), list):
        full["packages"] = [
            _package(cast("Json", package)) if isinstance(package, dict) else package
            for package in cast("list[Any]", packages)
        ]
    return full


def _package(package: Json) -> Json:
    full = dict(package)
    if isinstance(arguments := full.get("packageArguments"), list):
        full["packageArguments"] = [
            {"value": word} if isinstance(word, str) else word for word in cast("list[Any]", arguments)
        ]
    if isinstance(variables := full.get("environmentVariables"), dict):
        full["environmentVariables"] = [
            {**value, "name": name} if isinstance(value, dict) else value
            for name, value in cast("Json", variables).items()
        ]
    return full


def _unknown(written: Any, understood: Any) -> set[str]:
    """Keys that were written and that no struct has; those left at their default are missing from ``understood``
    without being unknown."""
    if isinstance(written, dict):
        there = cast("Json", understood) if isinstance(understood, dict) else {}
        found: set[str] = set()
        for key, value in cast("Json", written).items():
            if key in there:
                found |= _unknown(value, there[key])
            elif key not in _KNOWN:
                found.add(key)
        return found
    if isinstance(written, list) and isinstance(understood, list):
        pairs = zip(cast("list[Any]", written), cast("list[Any]", understood), strict=True)
        return {key for one, two in pairs for key in _unknown(one, two)}
    return set()


_PARTS = (Entry, Package, Transport, KeyValue, Argument, Repository, Icon, Login, ToolNote)
_KNOWN = frozenset(name for part in _PARTS for name in part.__struct_encode_fields__)
