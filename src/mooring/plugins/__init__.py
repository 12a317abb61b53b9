"""Servers, sources and launchers from outside. What authors of plugins import is here."""

from __future__ import annotations

TYPE_CHECKING = False  # as in ``mooring``: a plugin's server imports this beside its own code
if TYPE_CHECKING:
    from typing import Any

    from mooring.plugins.agent import container_input as container_input
    from mooring.plugins.agent import merge as merge
    from mooring.plugins.hooks import Context as Context
    from mooring.plugins.hooks import GuardedCall as GuardedCall
    from mooring.plugins.hooks import hookimpl as hookimpl
    from mooring.plugins.spec import McpPlugin as McpPlugin
    from mooring.plugins.spec import McpServerSpec as McpServerSpec
    from mooring.plugins.spec import PluginBase as PluginBase

_HOMES = {
    "McpPlugin": "spec",
    "McpServerSpec": "spec",
    "PluginBase": "spec",
    "Context": "hooks",
    "GuardedCall": "hooks",
    "hookimpl": "hooks",
    "container_input": "agent",
    "merge": "agent",
}
__all__ = [
    "Context",
    "GuardedCall",
    "McpPlugin",
    "McpServerSpec",
    "PluginBase",
    "container_input",
    "hookimpl",
    "merge",
]


def __getattr__(name: str) -> Any:
    """Import on first use: beside a server there is the standard library only."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"mooring.plugins.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'mooring.plugins' has no attribute {name!r}")
