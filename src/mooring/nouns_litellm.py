"""More of ``nouns``: what the export to LiteLLM reports, and prints with ``--json``. No boot needs it. Pure.

Times are epoch seconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class LiteLLMChange(msgspec.Struct, frozen=True):
    """One thing that a sync with LiteLLM did, or would do."""

    action: Literal["create", "update", "remove"]
    kind: str
    """``server`` | ``team`` | ``key``"""
    name: str
    id: str
    why: tuple[str, ...] = ()
    """Of an update: what differs."""


class LiteLLMSkipped(msgspec.Struct, frozen=True):
    """What a workspace has and LiteLLM is not told about."""

    workspace: str
    server: str
    variant: str
    reason: str


class LiteLLMReport(msgspec.Struct, frozen=True):
    """What ``mooring litellm sync`` and ``remove`` print."""

    url: str
    applied: bool
    """False: nothing was written (``--dry-run``)."""
    changes: tuple[LiteLLMChange, ...]
    skipped: tuple[LiteLLMSkipped, ...] = ()


class LiteLLMServer(msgspec.Struct, frozen=True):
    """A variant as LiteLLM has it."""

    variant: str
    name: str
    id: str
    calls: str
    """The URL that LiteLLM calls."""
    workspaces: tuple[str, ...]


class LiteLLMStatus(msgspec.Struct, frozen=True):
    """What ``mooring litellm status`` prints: how the last sync ended, and what it left in LiteLLM."""

    url: str
    via: str
    state: Literal["waiting", "ok", "failing"]
    """``waiting``: no sync has ended yet since the daemon started."""
    error: str = ""
    synced_at: float | None = None
    """When LiteLLM was last seen to be as it should."""
    servers: tuple[LiteLLMServer, ...] = ()
    workspaces: tuple[str, ...] = ()
    """Those with a team and a key."""
    skipped: tuple[LiteLLMSkipped, ...] = ()


class LiteLLMAccess(msgspec.Struct, frozen=True):
    """How an agent reaches a workspace through LiteLLM. Holds a key: for ``mooring env`` only."""

    url: str
    key: str
    workspace: str
