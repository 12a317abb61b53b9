"""Registries that speak the v0.1 API, such as registry.modelcontextprotocol.io.

Source: https://github.com/modelcontextprotocol/registry, docs/reference/api. Pages are followed by cursor; with a mark
only what was updated since is asked for, deletions included. The mark is the latest ``updatedAt`` that was seen: the
registry's own clock, so that a wrong one here loses nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast
from urllib.parse import urlencode

import msgspec

from mooring.catalog import server_json
from mooring.catalog.entry import Entry
from mooring.catalog.source import Batch, Get
from mooring.config.plan import CatalogSource
from mooring.errors import Unavailable, UpstreamProtocol

OFFICIAL = "https://registry.modelcontextprotocol.io"
PAGE = 100
"""Servers a page; the official registry gives no more."""
PAGES = 20_000
"""Pages at most: a registry that never ends is broken."""
PAGE_BYTES = 16 << 20
_DELETED = "deleted"


class _Metadata(msgspec.Struct, rename="camel"):
    next_cursor: str | None = None


class _Page(msgspec.Struct):
    servers: list[Any] | None = None
    metadata: _Metadata | None = None


class Registry:
    """``kind = "registry"``."""

    kind = "registry"
    origins = (CatalogSource(name="official", kind="registry", url=OFFICIAL, asked_first=True),)
    incremental = True

    async def read(self, origin: CatalogSource, mark: str, get: Get) -> AsyncIterator[Batch]:
        """See ``catalog.source.SourceKind``."""
        latest, cursor, seen = mark, "", set[str]()
        for _ in range(PAGES):
            page = await self._page(origin, mark, cursor, get)
            batch, latest = _batch(origin, page.servers or [], latest)
            yield batch
            cursor = (page.metadata.next_cursor if page.metadata else None) or ""
            if not cursor:
                yield Batch(mark=latest)
                return
            if cursor in seen:
                raise UpstreamProtocol(f"The registry {origin.url} gives the cursor {cursor!r} twice.")
            seen.add(cursor)
        raise UpstreamProtocol(f"The registry {origin.url} has more than {PAGES} pages.")

    async def _page(self, origin: CatalogSource, mark: str, cursor: str, get: Get) -> _Page:
        asked = {"limit": str(PAGE), "version": "latest"}
        if mark:
            asked |= {"updated_since": mark, "include_deleted": "true"}
        if cursor:
            asked["cursor"] = cursor
        url = f"{origin.url.rstrip('/')}/v0.1/servers?{urlencode(asked)}"
        answer = await get(url, {"Accept": "application/json"}, PAGE_BYTES)
        if answer.status != 200:
            raise Unavailable(f"The registry {origin.url} answered with HTTP {answer.status}.")
        try:
            return msgspec.json.decode(answer.body, type=_Page)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UpstreamProtocol(f"The registry {origin.url} answered with something else: {error}") from None


def _batch(origin: CatalogSource, items: list[Any], latest: str) -> tuple[Batch, str]:
    """What a page says, and the latest time in it."""
    entries: list[Entry] = []
    gone: list[str] = []
    problems: list[str] = []
    for item in items:
        try:
            if not isinstance(item, dict):
                raise ValueError("it is no object")
            entry, listed = server_json.parse_listed(cast("dict[str, Any]", item), origin.name)
        except ValueError as error:
            problems.append(f"{_name(item)}: {error}")
            continue
        latest = max(latest, listed.updated_at)
        if not listed.is_latest:
            continue
        if listed.status == _DELETED:
            gone.append(entry.id)
        else:
            entries.append(entry)
    return Batch(entries=entries, gone=gone, problems=problems), latest


def _name(item: Any) -> str:
    """What a record that is not understood is called."""
    try:
        return str(item["server"]["name"])
    except (TypeError, KeyError, IndexError):
        return "a record without a name"
