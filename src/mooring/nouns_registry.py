"""More of ``nouns``: what catalog and registry report, and print with ``--json``. No boot needs it. Pure.

Times are epoch seconds.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mooring.nouns import State

Outcome = Literal["refreshed", "unchanged", "fresh", "failed"]


class EntryRow(msgspec.Struct, frozen=True):
    """One entry of the catalog that answers a question."""

    id: str
    name: str
    description: str
    source: str
    launch: tuple[str, ...]
    """How it can be started here (``container``, ``npm``, ``pypi``, ``remote``); empty: it cannot."""
    needs: tuple[str, ...]
    """Settings and secrets that must be given."""
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    official: bool = False
    featured: bool = False
    trusted: bool = False
    """Its source is trusted: agents may add it."""
    deprecated: bool = False
    tools: tuple[str, ...] = ()
    """Names of tools that its source lists."""


class EntryReport(msgspec.Struct, frozen=True):
    """All that the catalog knows about one entry."""

    row: EntryRow
    first_seen: float
    changed_at: float
    gone: bool
    """Its source no longer has it."""
    also_in: tuple[str, ...]
    """Other sources with an entry of this id; this one is taken first."""
    entry: dict[str, Any]
    """The entry, in the names of server.json and some more."""
    document: dict[str, Any]
    """As its source wrote it."""


class SourceRow(msgspec.Struct, frozen=True):
    """One source of the catalog; of the kind "plugin" one that a plugin could not bring."""

    name: str
    kind: str
    place: str
    trusted: bool
    entries: int
    state: Literal["never", "ok", "failed"]
    refreshed_at: float | None = None
    next_at: float | None = None
    """When it is read again by itself, at the earliest; none when only somebody's asking does it."""
    error: str = ""
    problems: tuple[str, ...] = ()
    """Records that could not be understood, some of them."""


class RefreshReport(msgspec.Struct, frozen=True):
    """What refreshing one source did."""

    name: str
    outcome: Outcome
    """``fresh``: nothing was asked, its interval is not over."""
    entries: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    next_at: float | None = None
    problems: tuple[str, ...] = ()
    error: str = ""


class ActiveMount(msgspec.Struct, frozen=True):
    """A server that was added to a workspace at run time, and how it is now."""

    entry_id: str
    """``command:<prefix>`` for a free command."""
    name: str
    """What people call it."""
    workspace: str
    prefix: str
    server: str
    """Its name in ``mooring ps``, ``logs`` and ``restart``."""
    state: State
    container_id: str | None
    """The container that runs now, by the name that its engine knows; null when none does."""
    environment: dict[str, str]
    """Variable to where its value is kept; values that are no secrets are masked."""
    tools: tuple[str, ...]
    """As the server calls them, when it was last listed."""
    mounted_at: float
    settings: dict[str, Any] = {}
    """What was given when it was added."""
    reason: str = ""
    """Why it does not run now, or cannot."""
    pid: int | None = None
    last_error: str = ""
    approval: str = ""
    """The approval without which it could not have been added."""
    notes: tuple[str, ...] = ()
    """What else there is to know after adding it."""


class ApprovalRow(msgspec.Struct, frozen=True):
    """Something that an agent asked to run, and that a person approves or not."""

    id: str
    workspace: str
    entry_id: str
    source: str
    """Where the entry comes from; "" for a free command."""
    command: tuple[str, ...]
    """Exactly what would be run, or the URL."""
    reach: tuple[str, ...]
    """What it could get at, in words."""
    asked_at: float
    approved_at: float | None = None
