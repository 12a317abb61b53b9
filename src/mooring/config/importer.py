"""Takes over what other programs know about MCP servers; called by ``mooring import``.

Reads ``mcpServers`` JSON (Claude Desktop and Code, Cursor and others, projects of ``~/.claude.json`` included), VS
Code's ``servers`` with ``inputs``, and Shepherd's ``mcp_config`` / ``smcp_config`` arrays. Importing twice changes
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mooring.config import decode, jsonc
from mooring.config.edit import added, written
from mooring.config.fault import Fault
from mooring.config.imported import Entry
from mooring.config.names import RESERVED_SERVERS, prefix_of, server_fault
from mooring.config.schema import Loaded
from mooring.config.schema_base import dotted
from mooring.config.secrets import Secrets
from mooring.errors import ConfigError


class Found(msgspec.Struct, frozen=True):
    """One entry as it was found, with the place for messages."""

    name: str
    entry: Any
    smcp: bool = False


class Import(msgspec.Struct, frozen=True):
    """What an import would do. Holds secret values: it never prints them, and nobody should keep it."""

    servers: dict[str, dict[str, Any]]
    """New servers, as tables."""
    secrets: dict[str, str]
    """Store name to value, to be stored."""
    wanted: tuple[str, ...] = ()
    """Store names whose value a person has to give: ``mooring secret set``."""
    unchanged: tuple[str, ...] = ()
    """Servers that are there already."""
    problems: tuple[str, ...] = ()
    """What was not taken over, or differently, and why."""

    def __repr__(self) -> str:
        return f"Import(servers={list(self.servers)}, secrets={list(self.secrets)})"

    @property
    def toml(self) -> str:
        """The new servers as they would be written."""
        return written(self.servers)

    def write(self, loaded: Loaded, secrets: Secrets) -> tuple[str, ...]:
        """Store the secrets, then write the servers; returns the files written. Raises ConfigError, and then the
        configuration is as it was."""
        if not self.servers:
            return ()
        edit = added(loaded, self.servers)
        edit.check()
        for name, value in self.secrets.items():
            secrets.store_set(name, value)
        return edit.apply()


def plan_import(text: str, loaded: Loaded, name: str = "") -> Import:
    """What ``text`` would add to ``loaded``. ``name`` of the file decides what a bare array without credentials is:
    SMCP when it says so. Raises ConfigError when nothing in ``text`` is a list of servers."""
    try:
        document = jsonc.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        raise ConfigError(f"not valid JSON: {reason}", file=name or None) from None
    found = list(_entries(document, "smcp" in name.lower()))
    if not found and not _known_shape(document):
        raise ConfigError("no servers in it: expected mcpServers, servers, or mcp_config", file=name or None)
    return _Importing(loaded, _inputs(document)).take(found)


class _Importing:
    """Collects what the entries bring."""

    def __init__(self, loaded: Loaded, inputs: Mapping[str, str | None]) -> None:
        self.config = loaded.config
        self.inputs = inputs
        self.claimed: dict[str, Entry] = {}
        """By prefix, which has to be unique too."""
        self.servers: dict[str, dict[str, Any]] = {}
        self.secrets: dict[str, str] = {}
        self.wanted: set[str] = set()
        self.unchanged: list[str] = []
        self.problems: list[str] = []

    def take(self, found: list[Found]) -> Import:
        for one in found:
            self._take(one)
        return Import(
            self.servers, self.secrets, tuple(sorted(self.wanted)), tuple(self.unchanged), tuple(self.problems)
        )

    def _take(self, found: Found) -> None:
        name = _server_name(found.name)
        fields = _dict(found.entry)
        if not fields:
            self.problems.append(f"{name}: it says nothing and is left out")
            return
        name, entry = self._claim(name, fields, found.smcp)
        if entry is None:
            return
        fault = _fault(name, entry)
        if fault is not None:
            self.problems += [*entry.problems, *fault]
            return
        if name in self.config.mcp_servers and self._same(name, entry.table):
            self.unchanged.append(name)
            return
        if name in self.config.mcp_servers or name in self.config.mcp_groups:
            self.problems.append(f"{name}: the name is taken in your configuration; rename one of them")
            return
        if name != found.name:
            self.problems.append(f'{name}: called "{found.name}" there')
        self.problems += entry.problems
        self.servers[name] = entry.table
        self.secrets |= entry.secrets
        self.wanted |= entry.wanted

    def _claim(self, name: str, fields: dict[str, Any], smcp: bool) -> tuple[str, Entry | None]:
        """A name of its own for the entry, the same at every import; None when an equal one has been seen."""
        number, base = 1, name
        while True:
            entry = Entry(name, fields, self.inputs, smcp)
            seen = self.claimed.setdefault(prefix_of(name), entry)
            if seen is entry:
                return name, entry
            if (seen.name, seen.table, seen.secrets) == (entry.name, entry.table, entry.secrets):
                return name, None
            number += 1
            name = f"{base}-{number}"

    def _same(self, name: str, table: dict[str, Any]) -> bool:
        """Whether the server there is this one; being switched off or on since makes no other of it."""
        there = self.config.mcp_servers[name]
        new = decode.config({"mcp_servers": {name: table}}).mcp_servers[name]
        return msgspec.structs.replace(new, enabled=True) == msgspec.structs.replace(there, enabled=True)


def _fault(name: str, entry: Entry) -> list[str] | None:
    """Why the entry cannot be taken over at all; None when it can. An empty table has given its reason already."""
    if not entry.table:
        return []
    try:
        decode.config({"mcp_servers": {name: entry.table}})
    except Fault as fault:
        return [f"{name}: {dotted(fault.path)}: {fault.message}; it is left out"]
    return None


def _entries(document: Any, smcp: bool) -> Iterator[Found]:
    yield from _array(document, smcp)
    top = _dict(document)
    for key, credentials in (("mcp_config", False), ("smcp_config", True)):
        yield from _array(_parsed(top.get(key)), credentials)
    for key, credentials in (("mcp_servers", False), ("smcp_servers", True)):
        yield from _array(top.get(key), credentials)
    tables = [top.get("mcpServers"), top.get("servers"), _dict(top.get("mcp")).get("servers")]
    tables += [_dict(project).get("mcpServers") for project in _dict(top.get("projects")).values()]
    for table in tables:
        for name, entry in _dict(table).items():
            yield Found(name, entry)


def _array(entries: Any, smcp: bool) -> Iterator[Found]:
    for entry in _list(entries):
        yield Found(str(_dict(entry).get("name") or "unnamed"), entry, smcp)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] -- JSON


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType] -- JSON


def _parsed(value: Any) -> Any:
    """Shepherd may hold its arrays as text."""
    try:
        return jsonc.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None


def _known_shape(document: Any) -> bool:
    keys = ("mcp_config", "smcp_config", "mcp_servers", "smcp_servers", "mcpServers", "servers", "projects")
    top = _dict(document)
    return isinstance(document, list) or any(isinstance(top.get(key), dict | list | str) for key in keys)


def _inputs(document: Any) -> dict[str, str | None]:
    """VS Code's inputs: id to default; None for passwords and for what a person has to type."""
    listed = [_dict(entry) for entry in _list(_dict(document).get("inputs"))]
    return {
        str(entry["id"]): None if entry.get("password") else entry.get("default") for entry in listed if "id" in entry
    }


def _server_name(name: str) -> str:
    """``name`` as ours have to look."""
    made = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:60] or "server"
    return f"{made}-server" if made in RESERVED_SERVERS or server_fault(made) else made
