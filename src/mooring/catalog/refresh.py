"""When each source is read, and what becomes of what it says.

A source is read when somebody looks for something and it is due, or when a person asks; never at boot. When it was read
last is remembered over restarts. What came before a source broke off is kept; only a listing that came to its end takes
anything away. One source that fails harms no other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from mooring.catalog.shelf import Shelf
from mooring.catalog.source import Get, SourceKind
from mooring.config.plan import CatalogSource
from mooring.errors import ConfigError, MooringError
from mooring.nouns_registry import Outcome, RefreshReport, SourceRow
from mooring.store.base import Row, Store

_log = logging.getLogger(__name__)

RETRY = 600.0
"""Seconds after a failure before a source is read again by itself."""
COMPLETE = 7 * 86400.0
"""Seconds after which a source that names only changes is read in full: it may have lost something without a word."""
PROBLEMS = 20
"""Records that could not be understood of which the reason is kept."""

Progress = Callable[[str, int], None]
"""Called with a source and how many entries have come."""
Opened = Callable[[CatalogSource], AbstractAsyncContextManager[Get]]


class _State(msgspec.Struct, frozen=True):
    """What the store remembers about a source."""

    place: str = ""
    mark: str = ""
    run: int = 0
    tried_at: float = 0.0
    refreshed_at: float | None = None
    complete_at: float | None = None
    error: str = ""
    problems: tuple[str, ...] = ()


class Refresh:
    """Reads sources into a shelf."""

    def __init__(
        self,
        shelf: Shelf,
        store: Store,
        kinds: Mapping[str, SourceKind],
        http: Opened,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._shelf = shelf
        self._store = store
        self._kinds = kinds
        self._http = http
        self._clock = clock
        self._locks: dict[str, asyncio.Lock] = {}

    async def forget_others(self, sources: Sequence[CatalogSource]) -> None:
        """What sources had that are configured no more is not found any more."""
        names = {source.name for source in sources}
        for row in await self._store.read("catalog_sources"):
            if row[0] not in names:
                await self._shelf.forget(row[0], self._clock())

    async def due(self, sources: Sequence[CatalogSource]) -> list[CatalogSource]:
        """Those that should be read now without anybody asking for it."""
        states, now = await self._states(), self._clock()
        return [source for source in sources if _due(source, states.get(source.name, _State()), now)]

    async def refresh(
        self, source: CatalogSource, *, force: bool = False, progress: Progress | None = None
    ) -> RefreshReport:
        """Read a source, unless what it said is still fresh. Never raises for the source's own faults."""
        async with self._locks.setdefault(source.name, asyncio.Lock()):
            state = (await self._states()).get(source.name, _State())
            began = self._clock()
            if not force and _fresh(source, state, began):
                return RefreshReport(
                    name=source.name, outcome="fresh", next_at=(state.refreshed_at or 0.0) + source.interval
                )
            if state.place != source.place:
                state = msgspec.structs.replace(state, mark="", complete_at=None)
            run = state.run + 1
            await self._store.run("catalog_tried", name=source.name, place=source.place, now=began, **{"pass": run})
            try:
                outcome, problems = await self._read(source, state, run, progress)
            except Exception as error:
                text = str(error) if isinstance(error, MooringError) else f"{type(error).__name__}: {error}"
                if not isinstance(error, MooringError):
                    _log.exception('the catalog source "%s" could not be read', source.name)
                await self._store.run("catalog_failed", name=source.name, error=text)
                return await self._report(source, "failed", began, error=text)
            finally:
                if source.name not in await self._states():  # it was taken out of the configuration meanwhile
                    await self._shelf.forget(source.name, self._clock())
            return await self._report(source, outcome, began, problems=tuple(problems))

    async def rows(self, sources: Sequence[CatalogSource]) -> list[SourceRow]:
        """Each source: what it has, and how its last refresh went."""
        states, counts = await self._states(), await self._shelf.counts()
        return [_row(source, states.get(source.name, _State()), counts.get(source.name, (0,))[0]) for source in sources]

    async def _read(
        self, source: CatalogSource, state: _State, run: int, progress: Progress | None
    ) -> tuple[Outcome, list[str]]:
        kind = self._kinds.get(source.kind)
        if kind is None:
            raise ConfigError(
                f'The catalog source "{source.name}" is of the kind "{source.kind}", which nothing here can read. '
                f"Kinds: {', '.join(sorted(self._kinds))}."
            )
        began = self._clock()
        stale = kind.incremental and began - (state.complete_at or 0.0) > COMPLETE
        mark = "" if stale else state.mark
        partial = kind.incremental and bool(mark)
        latest, count, unchanged, problems = mark, 0, False, list[str]()
        async with self._http(source) as get:
            async for batch in kind.read(source, mark, get):
                await self._shelf.put(source.name, batch.entries, run, self._clock())
                if batch.gone:
                    await self._shelf.gone(source.name, batch.gone, self._clock())
                latest, unchanged = batch.mark or latest, batch.unchanged
                count += len(batch.entries)
                problems += batch.problems
                if progress:
                    progress(source.name, count)
        if not partial and not unchanged:
            await self._shelf.sweep(source.name, run, self._clock())
        await self._store.run(
            "catalog_refreshed",
            name=source.name,
            mark=latest,
            now=self._clock(),
            complete=int(not partial),
            unchanged=int(unchanged),
            problems=msgspec.json.encode(problems[:PROBLEMS]).decode(),
        )
        return "unchanged" if unchanged else "refreshed", problems

    async def _report(
        self, source: CatalogSource, outcome: Outcome, since: float, error: str = "", problems: tuple[str, ...] = ()
    ) -> RefreshReport:
        entries, added, changed, removed = (await self._shelf.counts(since)).get(source.name, (0, 0, 0, 0))
        return RefreshReport(
            name=source.name,
            outcome=outcome,
            entries=entries,
            added=added,
            changed=changed,
            removed=removed,
            problems=problems[:PROBLEMS],
            error=error,
        )

    async def _states(self) -> dict[str, _State]:
        return {row[0]: _state(row) for row in await self._store.read("catalog_sources")}


def _state(row: Row) -> _State:
    _, place, mark, run, tried_at, refreshed_at, complete_at, error, problems = row
    left_out = msgspec.json.decode(problems, type=tuple[str, ...])
    return _State(place, mark, run, tried_at, refreshed_at, complete_at, error, left_out)


def _fresh(source: CatalogSource, state: _State, now: float) -> bool:
    """Whether what was read is still to be taken for true. What costs nothing to look at never is."""
    if state.refreshed_at is None or state.place != source.place or not source.url:
        return False
    return now - state.refreshed_at < source.interval


def _due(source: CatalogSource, state: _State, now: float) -> bool:
    """Whether it should be read without anybody asking."""
    same = state.place == source.place
    read = state.refreshed_at if same else None
    if read is None and source.asked_first:
        return False
    if state.error and same and now - state.tried_at < RETRY:
        return False
    if read is None:
        return True
    return source.interval > 0 and now - max(read, state.tried_at) >= source.interval


def _row(source: CatalogSource, state: _State, entries: int) -> SourceRow:
    known = state.place == source.place
    read = state.refreshed_at if known else None
    automatic = source.interval > 0 and not (read is None and source.asked_first)
    return SourceRow(
        name=source.name,
        kind=source.kind,
        place=source.url or source.path,
        trusted=source.trusted,
        entries=entries,
        state="failed" if known and state.error else "never" if read is None else "ok",
        refreshed_at=read,
        next_at=read + source.interval if read is not None and automatic else None,
        error=state.error if known else "",
        problems=state.problems if known else (),
    )
