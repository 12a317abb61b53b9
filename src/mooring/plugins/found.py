"""What is known of installed plugins, as data: found in processes of their own, kept in a file, read at boot. Pure.

Annotations are evaluated as they stand: as strings they would be compiled at every boot.
"""

from typing import Annotated, Literal

import msgspec

GROUP = "mooring.plugins"
"""The entry points of this group are plugins."""
Stamp = tuple[int, int]
"""Modified (ns) and inode."""
Run = Literal["container", "host"]


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A checked ``McpServerSpec``."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    host_source: str | None = None
    """Absolute path."""
    is_package: bool = False
    """``host_source`` is a package: it is imported by its own name, from the folder it is in."""
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    image: str | None = None
    run: Run | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    source: str = ""
    """Digest of the code: another one is another server."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One entry point of the group, and what stands behind it."""

    name: str
    """Of the entry point; that of the plugin."""
    distribution: str
    distribution_version: str = ""
    entry: str = ""
    """``module:attribute``"""
    version: str = ""
    description: str = ""
    categories: tuple[str, ...] = ()
    servers: tuple[Server, ...] = ()
    hooks: tuple[str, ...] = ()
    """Hooks that are called in the daemon: it imports only plugins that have some."""
    skipped: str = ""
    """Why nothing of it is used; "" when it is."""
    problems: tuple[str, ...] = ()
    """What of it is not used, and why."""
    files: dict[str, Stamp] = {}
    """Source that the answer depends on."""


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """All plugins, and when this holds no longer."""

    plugins: tuple[Found, ...] = ()
    disabled: tuple[str, ...] = ()
    """``[plugins] disable`` as it was: those were not looked at."""
    trace: bool = False
    """``[plugins] trace``."""
    gone: dict[str, str] = {}
    """Servers that were there once and are not now, to their plugin: a workspace that still has one is no error."""
    folders: dict[str, Stamp] = {}
    """Folders in which packages are installed."""
    origin: tuple[str, ...] = ()
    """The interpreter and the Mooring that looked."""

    @property
    def usable(self) -> tuple[Found, ...]:
        """Those that are not skipped."""
        return tuple(plugin for plugin in self.plugins if not plugin.skipped)

    @property
    def in_daemon(self) -> tuple[Found, ...]:
        """Those that the daemon imports."""
        return tuple(plugin for plugin in self.usable if plugin.hooks)


def without_clashes(plugins: tuple[Found, ...]) -> tuple[Found, ...]:
    """Neither of two plugins, or servers of plugins, with the same name is used: which of them is meant, a person has
    to say. Pure."""
    owners: dict[str, list[Found]] = {}
    servers: dict[str, list[Found]] = {}
    for plugin in plugins:
        if plugin.skipped:
            continue
        owners.setdefault(plugin.name, []).append(plugin)
        for server in plugin.servers:
            servers.setdefault(server.name, []).append(plugin)
    return tuple(_without(plugin, owners, servers) for plugin in plugins)


def _without(plugin: Found, owners: dict[str, list[Found]], servers: dict[str, list[Found]]) -> Found:
    if plugin.skipped:
        return plugin
    if others := [other for other in owners[plugin.name] if other is not plugin]:
        why = f'{_from(others)} is named so too; disable one: [plugins] disable = ["{others[0].distribution}"]'
        return msgspec.structs.replace(plugin, skipped=why)
    problems = list(plugin.problems)
    for server in plugin.servers:
        others = [other for other in servers[server.name] if other is not plugin]
        if others:
            problems.append(
                f'its server "{server.name}" is not offered: {_from(others)} brings one of that name too; disable one, '
                f'or write which: [mcp_servers.{server.name}] plugin = "{plugin.name}"'
            )
    return msgspec.structs.replace(plugin, problems=tuple(problems))


def _from(plugins: list[Found]) -> str:
    return " and ".join(f'"{plugin.name}" of {plugin.distribution}' for plugin in plugins)
