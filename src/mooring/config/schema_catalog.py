"""The tables of what comes from outside: ``[catalog]`` and ``[plugins]``. Pure; see ``config.schema``."""

from __future__ import annotations

from typing import Literal

from mooring.config.durations import Seconds
from mooring.config.schema_base import Table
from mooring.config.schema_servers import Timeouts


class CatalogSource(Table, frozen=True, kw_only=True):
    """Where entries of the catalog come from. `starter`, `official` and `docker` are there without being written; a
    table of that name replaces one."""

    kind: str
    """`registry` (speaks the v0.1 API), `docker` (a checkout or archive of Docker's catalog), `files` (entries of your
    own), `starter` (the list that comes with Mooring), or what a plugin brings."""
    url: str | None = None
    """Address of the registry, or of the archive."""
    path: str | None = None
    """File or folder, relative to this file."""
    interval: Seconds = Seconds(86400)
    """How long what was read stays fresh; 0: it is read again only when somebody asks for it."""
    trusted: bool = False
    """Agents may add its entries without being asked."""
    enabled: bool = True
    """`false`: its entries are not found."""

    def __post_init__(self) -> None:
        if self.url is not None and self.path is not None:
            raise ValueError("a source has url or path, not both")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("url needs to begin with http:// or https://")
        if self.kind == "registry" and self.url is None:
            raise ValueError("a registry needs its url")
        if self.kind == "files" and self.path is None:
            raise ValueError("files need a path")


class Catalog(Table, frozen=True, kw_only=True):
    """What could be run, and what of it agents may add without being asked. Everything else that an agent wants to
    run waits for `mooring approve`."""

    sources: dict[str, CatalogSource] = {}
    """Name, which is the first part of its entries' ids, to source."""
    allow: tuple[str, ...] = ()
    """Entries of sources that are not trusted, as globs on their ids: `"official/com.example/*"`."""
    commands: tuple[tuple[str, ...], ...] = ()
    """Commands that agents may run as servers, each whole with its arguments: `["uvx", "mcp-server-time"]`."""
    timeouts: Timeouts = Timeouts()
    """Limits for the steps of every server that is added while Mooring runs."""


class Plugins(Table, frozen=True, kw_only=True):
    """Installed plugins."""

    disable: tuple[str, ...] = ()
    """Plugins, or packages that bring some, that are not even imported."""
    image: str | None = None
    """Image in which servers of plugins run; default Python's own, with the `mcp` library added."""
    run: Literal["container", "host"] | None = None
    """Where servers of plugins run; default in a container where there is an engine, else on this machine."""
    trace: bool = False
    """Log every call of a hook."""
