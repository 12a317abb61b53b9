"""The hooks a plugin may implement: their names, their arguments, one sentence each. Pure.

Mooring's own launchers, sinks and sources come through the same hooks. Hooks are called once by ``plugins.manager``, at
boot if not said otherwise, never in a call. In a plugin::

    from mooring.plugins.hooks import hookimpl

    @hookimpl
    def mooring_launchers(context): return [MyLauncher()]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import pluggy

from mooring.observe.events import Sink

if TYPE_CHECKING:
    from mooring.catalog.source import SourceKind
    from mooring.launch.base import Launcher

PROJECT = "mooring"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Context(msgspec.Struct, frozen=True):
    """What a plugin is told at boot."""

    state: str
    """Mooring's state folder; a plugin keeps its files in a folder of its own name there."""


@hookspec
def mooring_launchers(context: Context) -> Sequence[Launcher]:  # pyright: ignore[reportReturnType]
    """Launchers for kinds of servers; the first plugin that brings a kind serves it."""


@hookspec
def mooring_event_sinks(context: Context) -> Sequence[Sink]:  # pyright: ignore[reportReturnType]
    """Functions that get every event, in the event loop; they must return at once."""


@hookspec
def mooring_catalog_sources(context: Context) -> Sequence[SourceKind]:  # pyright: ignore[reportReturnType]
    """Kinds of sources of the catalog; the first plugin that brings a kind reads it; called when somebody first looks
    for something, not at boot."""
