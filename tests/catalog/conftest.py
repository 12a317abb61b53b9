"""A shelf in a file, sources, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mooring.catalog.refresh import Refresh
from mooring.catalog.search import Question
from mooring.catalog.shelf import Shelf
from mooring.catalog.source import SourceKind
from mooring.catalog.sources.docker import DockerCatalog
from mooring.catalog.sources.files import Files
from mooring.catalog.sources.registry import Registry
from mooring.catalog.sources.starter import Starter
from mooring.config.plan import CatalogSource
from mooring.serve.catalog import http
from mooring.store.sqlite import SqliteStore

DAY = 86400.0


class Desk:
    """A store, a shelf over it, and what reads into it; ``now`` is what the clock says."""

    def __init__(self, store: SqliteStore, *more: SourceKind) -> None:
        self.now = 1_800_000_000.0
        self.store = store
        self.shelf = Shelf(store)
        kinds = {kind.kind: kind for kind in (Starter(), Registry(), DockerCatalog(), Files(), *more)}
        self.refreshing = Refresh(self.shelf, store, kinds, http, lambda: self.now)

    async def ids(self, query: str = "", order: tuple[str, ...] = (), **more: Any) -> list[str]:
        """What is found."""
        sources = order or tuple(await self.shelf.counts())
        return [kept.entry.id for kept in await self.shelf.find(Question(query=query, **more), sources)]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncGenerator[Any]:
    """``await opened()``: a desk; called again it is the one after a restart."""
    async with AsyncExitStack() as stack:

        async def opened(*more: SourceKind) -> Desk:
            await stack.aclose()
            return Desk(await stack.enter_async_context(SqliteStore(tmp_path / "catalog.db")), *more)

        yield opened


@pytest.fixture
async def desk(opened: Any) -> Desk:
    """A desk with an empty shelf."""
    return await opened()


@pytest.fixture
async def stocked(desk: Desk) -> Desk:
    """A desk with the starter list."""
    report = await desk.refreshing.refresh(CatalogSource(name="starter", kind="starter", trusted=True))
    assert report.outcome == "refreshed"
    return desk
