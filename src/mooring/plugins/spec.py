"""What a plugin that brings MCP servers is made of: ``McpPlugin`` and ``McpServerSpec``.

Standard library only: in a container the plugin's package is imported beside its server, where Mooring's own libraries
are not. Values are plain here; ``plugins.found`` checks them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass
class McpServerSpec:
    """How to run one MCP server of a plugin. Text of ``args`` and ``env`` may hold ``{placeholders}`` for kwargs."""

    name: str
    """Name of the server, such as ``voice``: what workspaces are given."""
    command: str
    """Program to run. ``python`` is the interpreter that the plugin's packages are installed for."""
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables that are not secret. ``PYTHONPATH`` is added to, never replaced."""
    host_source: Path | str | None = None
    """Folder with the server's code. One with an ``__init__.py`` is a package and is found under its own name; the
    modules of any other are found by theirs."""
    requirements: Sequence[str] = ()
    """Packages of the server's own, as pip writes them, that are not installed where Mooring is."""
    packages: Sequence[str] = ()
    """System packages that it needs, by their Debian names; in containers only."""
    image: str | None = None
    """Image to run it in, instead of that of ``[plugins] image``."""
    run: Literal["container", "host"] | None = None
    """Where it has to run; by default in a container where there is an engine."""
    port: int | None = None
    """It speaks streamable HTTP at ``/mcp`` on this port, on all addresses of a container; on the host ``{port}``, also
    in the variable PORT, is a free one."""


class PluginBase:
    """What every plugin may say about itself; all of it is optional."""

    name: str = ""
    version: str = ""
    description: str = ""
    categories: Sequence[str] = ()
    requires_mooring: str = ""
    """Versions of Mooring that it works with, such as ``>=0.1,<1``."""


class McpPlugin(PluginBase, ABC):
    """A plugin that brings MCP servers."""

    categories = ("mcp",)

    @abstractmethod
    def mcp_server_spec(self) -> McpServerSpec | Sequence[McpServerSpec]:
        """The server, or several. Called when plugins are looked for, in a process of its own."""
        ...
