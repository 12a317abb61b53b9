"""The one exception of the pure half of this room; ``config.load`` and ``config.resolve`` add file and line. Pure."""

from __future__ import annotations

from mooring.config.schema_base import Path


class Fault(Exception):
    """Something in the configuration is wrong at ``path``."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
