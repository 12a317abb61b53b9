"""The list that comes with Mooring."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

from mooring import __version__
from mooring.catalog import own_toml
from mooring.catalog.source import Batch, Get
from mooring.config.plan import CatalogSource

NAME = "starter"
_FILE = Path(__file__).parents[1] / "starter.toml"


class Starter:
    """``catalog/starter.toml``."""

    kind = "starter"
    origins = (CatalogSource(name=NAME, kind="starter", trusted=True),)
    incremental = False

    async def read(self, origin: CatalogSource, mark: str, get: Get) -> AsyncIterator[Batch]:
        """See ``catalog.source.SourceKind``."""
        text = _FILE.read_text("utf-8")
        found = f"{__version__} {hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if found == mark:
            yield Batch(unchanged=True, mark=mark)
            return
        entries = [own_toml.parse(id, table, origin.name) for id, table in tomllib.loads(text).items()]
        yield Batch(entries=entries, mark=found)
