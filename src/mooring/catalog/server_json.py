"""server.json (schema 2025-12-11), alone or as the v0.1 registry API lists it, to an entry and back. Pure.

Source: https://github.com/modelcontextprotocol/registry, docs/reference/server-json and docs/reference/api.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from mooring.catalog.entry import Entry, Icon, Package, Part, Repository, Transport, entry_id
from mooring.catalog.residue import applied, plain, residue

OFFICIAL_META = "io.modelcontextprotocol.registry/official"
"""Key in ``_meta`` of a listed server under which a registry speaks for itself."""
_UNPROVEN = ("io.github.", "io.gitlab.")
"""Namespaces anybody has who has an account there; all others stand for a domain whose owner was asked."""


class _Document(Part, frozen=True, kw_only=True):
    """The members that an entry has a word for."""

    name: str
    title: str = ""
    description: str = ""
    version: str = ""
    website_url: str = ""
    repository: Repository | None = None
    icons: tuple[Icon, ...] = ()
    packages: tuple[Package, ...] = ()
    remotes: tuple[Transport, ...] = ()


class Listed(Part, frozen=True, kw_only=True):
    """What a registry says about a version of a server."""

    status: str = "active"
    published_at: str = ""
    updated_at: str = ""
    is_latest: bool = True


def parse(document: dict[str, Any], source: str, listed: Listed | None = None) -> Entry:
    """The entry of a server.json. Raises ValueError when it is none."""
    found = msgspec.convert(without_nulls(document), _Document)
    if not found.name.strip():
        raise ValueError("the name is empty")
    listed = listed or Listed()
    entry = Entry(
        id=entry_id(source, found.name),
        source=source,
        name=found.title or display_name(found.name),
        own_name=found.name,
        description=found.description,
        version=found.version,
        official=not found.name.startswith(_UNPROVEN) and "/" in found.name,
        status=listed.status,
        website_url=found.website_url,
        repository=found.repository,
        icons=found.icons,
        packages=found.packages,
        remotes=found.remotes,
        published_at=listed.published_at,
        updated_at=listed.updated_at,
        form="server.json",
    )
    return msgspec.structs.replace(entry, residue=residue(_rendered(entry), document))


def render(entry: Entry) -> dict[str, Any]:
    """The server.json of an entry; of an entry that came as one, that very document."""
    return applied(_rendered(entry), entry.residue if entry.form == "server.json" else ())


def parse_listed(item: dict[str, Any], source: str) -> tuple[Entry, Listed]:
    """The entry of one element of ``GET /v0.1/servers``, and what the registry says about it. Raises ValueError."""
    server: Any = item.get("server")
    if not isinstance(server, dict):
        raise ValueError("it has no server")
    meta: Any = item.get("_meta")
    own: Any = cast("dict[str, Any]", meta).get(OFFICIAL_META) if isinstance(meta, dict) else None
    listed = msgspec.convert(without_nulls(own or {}), Listed)
    return parse(cast("dict[str, Any]", server), source, listed), listed


def display_name(name: str) -> str:
    """What people may call a server whose only name is a reverse-DNS one."""
    return name.rpartition("/")[2] or name


def without_nulls(value: Any) -> Any:
    """A JSON value without members that are null: writers use them for "nothing said"."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {key: without_nulls(item) for key, item in members.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in cast("list[Any]", value)]
    return value


def _rendered(entry: Entry) -> dict[str, Any]:
    name = entry.own_name or entry.id
    document = _Document(
        name=name,
        title="" if entry.name == display_name(name) else entry.name,
        description=entry.description,
        version=entry.version,
        website_url=entry.website_url,
        repository=entry.repository,
        icons=entry.icons,
        packages=entry.packages,
        remotes=entry.remotes,
    )
    return plain(document)
