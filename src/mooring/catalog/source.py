"""The contract of a source of entries. Pure.

A *kind* of source knows how to read, an origin (``config.plan.CatalogSource``) says what is read. Kinds come through
the plugin hook ``mooring_catalog_sources``, Mooring's own in ``catalog.sources`` too; origins from the configuration
and from the kinds themselves. ``catalog.refresh`` calls them; a kind never writes and remembers nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

import msgspec

from mooring.catalog.entry import Entry
from mooring.config.plan import CatalogSource


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Some of what a source has to say."""

    entries: Sequence[Entry] = ()
    gone: Sequence[str] = ()
    """Ids that it no longer has."""
    problems: Sequence[str] = ()
    """Records that could not be understood, each with the reason; they are left out."""
    mark: str = ""
    """What to tell ``read`` next time; the last one that is not empty counts, once everything was read."""
    unchanged: bool = False
    """Nothing changed since the mark: everything that is there stays."""


class Answer(msgspec.Struct, frozen=True):
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Get(Protocol):
    """GET of a URL. ``most``: bytes that the body may have. Raises MooringError when there is no answer."""

    async def __call__(self, url: str, headers: Mapping[str, str], most: int) -> Answer: ...


class SourceKind(Protocol):
    """Reads origins of one kind."""

    @property
    def kind(self) -> str:
        """Its name in the configuration."""
        ...

    @property
    def origins(self) -> Sequence[CatalogSource]:
        """Those that are there without configuration; one of the same name in the configuration replaces it."""
        ...

    @property
    def incremental(self) -> bool:
        """With a mark, ``read`` names only what changed, so that what it does not name is still there."""
        ...

    def read(self, origin: CatalogSource, mark: str, get: Get) -> AsyncIterator[Batch]:
        """All that the origin has, or, with the mark of an earlier time, what changed. Raises MooringError when it
        breaks off; what came before is kept then, and the mark is not."""
        ...
