"""The contract of a store: what survives a restart, behind named queries.

Used by ``access.keys`` and by whoever keeps listings, eras and the like: each asks through here, none sees SQL. A store
never caches and never decides; what is hot lives in its users' memory, and is written here first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Row = tuple[Any, ...]


class Store(Protocol):
    """Named queries over durable rows. The names and parameters are those of ``store/queries/*.sql``."""

    async def run(self, query: str, then: Callable[[], None] | None = None, /, **parameters: Any) -> None:
        """Write, all statements of the query in one transaction. Returning means: on disk, and neither ``kill -9`` nor
        a power cut takes it back.

        ``then`` updates the memory that mirrors the row: it is called in the event loop as soon as the row is durable,
        before ``run`` returns, and also when the caller was cancelled meanwhile (durable first, then memory, and never
        the one without the other). It must not raise. Raises StoreError; nothing was written then."""
        ...

    async def read(self, query: str, /, **parameters: Any) -> list[Row]:
        """Read. Sees every write that was asked for earlier. Raises StoreError."""
        ...

    def rows(self, query: str, /, **parameters: Any) -> list[Row]:
        """Read and block; for boot only, while nobody is served yet. Raises StoreError."""
        ...
