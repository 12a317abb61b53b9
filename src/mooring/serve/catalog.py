"""The catalog in the daemon: its sources, its shelf, and when they are read. Imported when a verb first needs it.

Behind the verbs ``find`` and ``catalog_*`` of ``serve.verbs``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from mooring.catalog import docker_yaml, own_toml, server_json
from mooring.catalog.entry import Entry
from mooring.catalog.errors import UnknownEntry
from mooring.catalog.refresh import Progress, Refresh
from mooring.catalog.search import Question
from mooring.catalog.shelf import Kept, Shelf
from mooring.catalog.source import Answer, Get
from mooring.config.plan import CatalogSource
from mooring.errors import ConfigError
from mooring.nouns import Problem
from mooring.nouns_registry import EntryReport, EntryRow, RefreshReport, SourceRow
from mooring.plugins.manager import source_kinds

if TYPE_CHECKING:
    from mooring.serve.app import App

STARTER = "starter"
"""The list that comes with Mooring gives way to a source's own word about the same entry."""


class Catalog:
    """One for a daemon or library."""

    def __init__(self, app: App) -> None:
        self._app = app
        kinds, self._problems = source_kinds(app.plugins, app.context)
        self._kinds = kinds
        self._shelf = Shelf(app.store)
        self._refresh = Refresh(self._shelf, app.store, kinds, http)
        self._ready: tuple[CatalogSource, ...] | None = None
        """The sources for which the shelf was made ready."""
        self._readying = asyncio.Lock()
        self._reading: set[str] = set()

    async def find(self, question: Question) -> list[EntryRow]:
        """The entries that answer a question, best first. Raises ConfigError for a filter that lets nothing through."""
        sources = await self._prepared()
        found = await self._shelf.find(question, [source.name for source in sources])
        trusted = {source.name for source in sources if source.trusted}
        return [_row(kept.entry, kept.entry.source in trusted) for kept in found]

    async def show(self, id: str) -> EntryReport:
        """One entry. Raises ConfigError, with ids that are near, when there is none."""
        copies = await self.copies(id)
        kept = copies[0]
        trusted = any(source.trusted and source.name == kept.entry.source for source in self._sources())
        return EntryReport(
            row=_row(kept.entry, trusted),
            first_seen=kept.first_seen,
            changed_at=kept.changed_at,
            gone=kept.gone_at is not None,
            also_in=tuple(copy.entry.source for copy in copies[1:] if copy.gone_at is None),
            entry=msgspec.to_builtins(msgspec.structs.replace(kept.entry, residue=())),
            document=document(kept.entry),
        )

    async def copies(self, id: str) -> list[Kept]:
        """The entry of an id as its sources say it, the one to go by first. Raises ConfigError when there is none."""
        sources = await self._prepared()
        ranks = {source.name: rank for rank, source in enumerate(sources)}
        found = [kept for kept in await self._shelf.copies(id) if kept.entry.source in ranks]
        if not found:
            near = await self._shelf.find(Question(query=id.rpartition("/")[2], limit=3), list(ranks))
            meant = f" Did you mean {' or '.join(kept.entry.id for kept in near)}?" if near else ""
            raise UnknownEntry(f'There is no entry "{id}" in the catalog.{meant} Look for it with: mooring find WORDS')
        return sorted(found, key=lambda kept: (kept.gone_at is not None, ranks[kept.entry.source]))

    async def refresh(
        self, names: Sequence[str] = (), force: bool = False, progress: Progress | None = None
    ) -> list[RefreshReport]:
        """Read these sources, or all. Raises ConfigError for a name that no source has."""
        sources = {source.name: source for source in await self._prepared()}
        for name in names:
            if name not in sources:
                raise ConfigError(f'There is no catalog source "{name}". There are: {", ".join(sorted(sources))}.')
        chosen = [sources[name] for name in names] or list(sources.values())
        asked = (self._refresh.refresh(source, force=force, progress=progress) for source in chosen)
        return list(await asyncio.gather(*asked))

    async def status(self) -> list[SourceRow]:
        """Every source, in the order in which they count; then each plugin that could not bring its own."""
        return [*await self._refresh.rows(await self._prepared()), *map(_plugin_row, self._problems)]

    async def trusted(self) -> frozenset[str]:
        """The names of sources whose entries agents may add."""
        return frozenset(source.name for source in self._sources() if source.trusted)

    def _sources(self) -> tuple[CatalogSource, ...]:
        """The enabled ones: trusted before others, the starter list last of its kind."""
        named = {origin.name: origin for kind in self._kinds.values() for origin in kind.origins}
        named |= {source.name: source for source in self._app.plan.catalog}
        there = [source for source in named.values() if source.enabled]
        return tuple(sorted(there, key=lambda source: (not source.trusted, source.kind == STARTER, source.name)))

    async def _prepared(self) -> tuple[CatalogSource, ...]:
        """The sources, after what is at hand was read and what is due was begun."""
        sources = self._sources()
        async with self._readying:
            if self._ready != sources:
                await self._refresh.forget_others(sources)
                for source in sources:
                    if source.kind == STARTER:
                        await self._refresh.refresh(source)
                self._ready = sources
        for source in await self._refresh.due(sources):
            if source.name not in self._reading:
                self._reading.add(source.name)
                self._app.tasks.create_task(self._read(source))
        return sources

    async def _read(self, source: CatalogSource) -> None:
        try:
            await self._refresh.refresh(source)
        finally:
            self._reading.discard(source.name)


def document(entry: Entry) -> dict[str, object]:
    """An entry as its source wrote it."""
    match entry.form:
        case "server.json":
            return server_json.render(entry)
        case "server.yaml":
            return docker_yaml.render(entry)
        case "mooring":
            return own_toml.render(entry)


@asynccontextmanager
async def http(source: CatalogSource) -> AsyncGenerator[Get, None]:
    """GET for a source; what HTTP needs is loaded when the first request is made."""
    if not source.url:
        yield _nowhere
        return
    from mooring.wire.download import Downloads

    async with Downloads(source.url) as downloads:

        async def get(url: str, headers: Mapping[str, str], most: int) -> Answer:
            return Answer(*await downloads.get(url, headers, most))

        yield get


async def _nowhere(url: str, headers: Mapping[str, str], most: int) -> Answer:
    raise ConfigError(f"{url} cannot be fetched: this catalog source has no url.")


def _plugin_row(problem: Problem) -> SourceRow:
    return SourceRow(
        name=problem.path.removeprefix("plugins."),
        kind="plugin",
        place="",
        trusted=False,
        entries=0,
        state="failed",
        error=problem.message,
    )


def _row(entry: Entry, trusted: bool) -> EntryRow:
    return EntryRow(
        id=entry.id,
        name=entry.name,
        description=entry.description,
        source=entry.source,
        launch=entry.launches,
        needs=entry.needs,
        categories=entry.categories,
        tags=entry.tags,
        official=entry.official,
        featured=entry.featured,
        trusted=trusted,
        deprecated=entry.status == "deprecated",
        tools=tuple(tool.name for tool in entry.tools),
    )
