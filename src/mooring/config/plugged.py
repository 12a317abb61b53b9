"""Servers of plugins as the configuration has them: what a plugin declared and a person changed, in one table. Pure.

Made by ``plugins.servers`` before names are checked; ``config.launches`` turns them into launches like any other. They
are not written by anybody: they have members that ``mooring.toml`` does not know.
"""

from __future__ import annotations

from mooring.config.plan_servers import Environment
from mooring.config.schema_servers import CommandServer, ImageServer, PluginServer


class PluggedCommand(CommandServer, frozen=True, kw_only=True):
    """A server of a plugin on this machine."""

    plugin: str
    source: str
    environment: Environment | None = None


class PluggedImage(ImageServer, frozen=True, kw_only=True):
    """A server of a plugin in a container."""

    base: str
    """The image that its own is built on."""
    plugin: str
    source: str


class Unplugged(PluginServer, frozen=True, kw_only=True):
    """A server of a plugin that cannot be used."""

    why: str
