"""The hooks a plugin may implement: their names, their arguments, one sentence each. Pure.

Mooring's own launchers, sinks, sources and exporters come through the same hooks. Hooks are called once by
``plugins.manager``, at boot if not said otherwise, never in a call. In a plugin::

    from mooring.plugins.hooks import hookimpl

    @hookimpl
    def mooring_launchers(context): return [MyLauncher()]
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import pluggy

from mooring.observe.events import Sink

if TYPE_CHECKING:
    from mooring.catalog.source import SourceKind
    from mooring.export.base import Exporter
    from mooring.launch.base import Launcher
    from mooring.plugins.spec import McpServerSpec
    from mooring.wire.jsonrpc import Answer

PROJECT = "mooring"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Context(msgspec.Struct, frozen=True):
    """What a plugin is told at boot."""

    state: str
    """Mooring's state folder; a plugin keeps its files in a folder of its own name there."""
    trace: bool = False
    """Every call of a hook is logged (``[plugins] trace``)."""


class GuardedCall(msgspec.Struct, frozen=True):
    """A tool call on its way to its server, allowed by the policy."""

    workspace: str
    key: str
    """Id of the caller's key."""
    server: str
    tool: str
    """The name the caller used."""
    upstream: str
    """The name the server knows."""


Proceed = Callable[[bytes], "Awaitable[Answer]"]
"""Sends the params (raw JSON) on; raises MooringError when the server cannot answer."""
Guard = Callable[[GuardedCall, bytes, Proceed], "Awaitable[Answer]"]
"""Stands around a call: gets it, its params (raw JSON) and the way on, and returns the answer."""
Resolver = Callable[[str], str | None]
"""From what stands behind ``NAME:`` in a secret reference to the value; None when there is none. May block."""


@hookspec
def mooring_mcp_servers(context: Context) -> Sequence[McpServerSpec]:  # pyright: ignore[reportReturnType]
    """MCP servers, asked for in a process of its own whenever plugins are looked for."""


@hookspec
def mooring_call_guards(context: Context) -> Sequence[Guard]:  # pyright: ignore[reportReturnType]
    """Functions around every tool call, the first plugin's outermost; a call is refused by raising Refused."""


@hookspec
def mooring_secret_resolvers(context: Context) -> Mapping[str, Resolver]:  # pyright: ignore[reportReturnType]
    """Places where secrets are found, by the name that stands before the colon in a reference."""


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


@hookspec
def mooring_exporters(context: Context) -> Sequence[Exporter]:  # pyright: ignore[reportReturnType]
    """What tells other programs about Mooring; called once the daemon is ready."""
