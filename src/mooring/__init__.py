"""Mooring: one daemon that runs, shares, guards and serves MCP servers for AI agents."""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing: importing that doubles the start of the shim and of the keeper
if TYPE_CHECKING:
    from typing import Any

    from mooring.facade import Mooring as Mooring
    from mooring.facade import connect as connect
    from mooring.facade import open as open

__version__ = "0.1.0"
__all__ = ["Mooring", "connect", "open"]


def __getattr__(name: str) -> Any:
    """Import the library face on first use, so that the stdio shim pays for none of it."""
    if name in __all__:
        from mooring import facade

        return getattr(facade, name)
    raise AttributeError(f"module 'mooring' has no attribute {name!r}")
