"""Servers of installed plugins as servers of the configuration. Pure; called through ``serve.plugins`` by ``load``.

A plugin's server is there without being written; a table of its name with ``plugin`` changes single fields. What comes
out is a command or an image like any other, so grants, kwargs, sharing and idling need to know nothing of plugins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from mooring.config.plan_servers import Environment
from mooring.config.plugged import PluggedCommand, PluggedImage, Unplugged
from mooring.config.schema import Config
from mooring.config.schema_servers import AnyServer, Limits, PluginServer, Server
from mooring.nouns import Problem
from mooring.plugins import image
from mooring.plugins.found import Found, Installed
from mooring.plugins.found import Server as Brought

_PYTHONS = ("python", "python3")


class Here(msgspec.Struct, frozen=True):
    """What the answer depends on besides plugins and configuration."""

    engine: bool
    """There is a program that runs containers."""
    python: str
    """The interpreter that plugins are installed for."""
    version: str
    """Its version, such as ``3.13``."""
    state: str
    """Folder for environments and Dockerfiles."""
    library: str
    """Mooring's own package: what a plugin's package imports beside its server."""


class Plugged(msgspec.Struct, frozen=True):
    """The configuration with the servers of plugins."""

    config: Config
    problems: tuple[Problem, ...] = ()
    files: dict[str, str] = {}
    """What images are built from: path to content."""


def plugged(config: Config, installed: Installed, here: Here) -> Plugged:
    """Add what ``installed`` brings to what is written."""
    plugins = {plugin.name: plugin for plugin in installed.usable}
    problems = list(_troubles(installed))
    servers: dict[str, AnyServer] = {}
    files: dict[str, str] = {}
    written = {**config.mcp_servers, **_unwritten(config, installed, problems)}
    for name, server in written.items():
        if isinstance(server, PluginServer):
            made = server if isinstance(server, Unplugged) else _made(config, name, server, plugins, here, files)
            if isinstance(made, Unplugged) and server.enabled:
                level = "error" if name in config.mcp_servers else "warning"
                problems.append(Problem(level, f'"{name}": {made.why}', f"mcp_servers.{name}"))
            server = made
        servers[name] = server
    return Plugged(msgspec.structs.replace(config, mcp_servers=servers), tuple(problems), files)


def _troubles(installed: Installed) -> Iterator[Problem]:
    for plugin in installed.plugins:
        troubles = (*((plugin.skipped,) if plugin.skipped else ()), *plugin.problems)
        if plugin.name in installed.disabled or plugin.distribution in installed.disabled:
            continue
        for trouble in troubles:
            origin = f"{plugin.distribution} {plugin.distribution_version}".strip()
            yield Problem("error", f'plugin "{plugin.name}" of {origin}: {trouble}', f"plugins.{plugin.name}")


def _unwritten(config: Config, installed: Installed, problems: list[Problem]) -> dict[str, PluginServer]:
    """Servers that nobody wrote: those of plugins, and those that are still given to somebody though they are gone."""
    owners: dict[str, list[Found]] = {}
    for plugin in installed.usable:
        for server in plugin.servers:
            owners.setdefault(server.name, []).append(plugin)
    found: dict[str, PluginServer] = {}  # an Unplugged, where it is known that it cannot be used
    for name, plugins in owners.items():
        there = config.mcp_servers.get(name)
        if there is None and name not in config.mcp_groups and len(plugins) == 1:
            found[name] = PluginServer(plugin=plugins[0].name, server=name)
        elif (there is None and name in config.mcp_groups) or not isinstance(there, PluginServer | None):
            said = f'"{name}" is what is written here; {_named(plugins)} brings another'
            problems.append(Problem("warning", said, f"mcp_servers.{name}"))
    for name in sorted(_granted(config) - {"*"} - config.mcp_servers.keys() - config.mcp_groups.keys()):
        if name in found:
            continue
        if name in installed.gone:
            found[name] = PluginServer(plugin=installed.gone[name], server=name)
        elif missing := _missing(name, owners.get(name, []), installed):
            found[name] = missing
    return found


def _missing(name: str, owners: list[Found], installed: Installed) -> Unplugged | None:
    """What is granted and no plugin brings, though one might: a broken plugin is no reason to do without the rest."""
    if owners:
        which = f'[mcp_servers.{name}] plugin = "{owners[0].name}"'
        return Unplugged(
            plugin=owners[0].name, why=f"{_named(owners)} bring one of that name each; write which: {which}"
        )
    broken = [plugin for plugin in installed.plugins if plugin.skipped]
    for plugin in broken:
        if plugin.name == name:
            return Unplugged(plugin=name, why=f"{_named([plugin])} cannot be used: {plugin.skipped}")
    broken = [plugin for plugin in broken if not {plugin.name, plugin.distribution} & {*installed.disabled}]
    if broken:
        why = f"no server is called so; {_named(broken)} cannot be used, and might bring it"
        return Unplugged(plugin=broken[0].name, why=why)
    return None


def _named(plugins: list[Found]) -> str:
    return " and ".join(f'the plugin "{plugin.name}" of {plugin.distribution}' for plugin in plugins)


def _granted(config: Config) -> set[str]:
    layers = (config.agent_pool, *config.workspaces.values(), *config.teams.values(), *config.agents.values())
    names = {name for layer in layers for name in (*layer.mcp_servers, *layer.mcp)}
    return names.union(*config.mcp_groups.values())


def _made(
    config: Config,
    name: str,
    written: PluginServer,
    plugins: Mapping[str, Found],
    here: Here,
    files: dict[str, str],
) -> AnyServer:
    common = {field: getattr(written, field) for field in Server.__struct_fields__}
    brought = _brought(name, written, plugins, config)
    if isinstance(brought, str):
        return Unplugged(plugin=written.plugin, why=brought, **common)
    args = brought.args if written.args is None else written.args
    env = {**brought.env, **written.env}
    base = written.image or brought.image or config.plugins.image
    wanted = written.run or brought.run or config.plugins.run
    in_container = wanted == "container" or (
        wanted is None and here.engine and (brought.host_source is not None or base is not None)
    )
    if in_container:
        made = image.derived(name, brought, base, env.pop("PYTHONPATH", ""), here.state, here.library, here.version)
        files |= made.files
        return PluggedImage(
            image=made.name,
            dockerfile=made.dockerfile,
            base=made.base,
            args=(brought.command, *args),
            env=env,
            port=brought.port,
            volumes=(*made.volumes, *written.volumes),
            network=written.network,
            limits=written.limits,
            plugin=written.plugin,
            source=brought.source,
            **common,
        )
    if written.volumes or written.network != "open" or written.limits != Limits():
        why = 'volumes, network and limits are for containers, and it runs on this machine; see run, or "mooring check"'
        return Unplugged(plugin=written.plugin, why=why, **common)
    return _on_host(brought, args, env, written, common, here)


def _brought(name: str, written: PluginServer, plugins: Mapping[str, Found], config: Config) -> Brought | str:
    """The server that is meant, or why there is none."""
    plugin = plugins.get(written.plugin)
    if plugin is None:
        off = written.plugin in config.plugins.disable
        state = "is disabled in [plugins]" if off else "is not installed, or not usable (see: mooring plugins)"
        return f'its plugin "{written.plugin}" {state}'
    by_name = {server.name: server for server in plugin.servers}
    if written.server is None and name not in by_name and len(by_name) == 1:
        return next(iter(by_name.values()))
    meant = written.server or name
    if meant in by_name:
        return by_name[meant]
    return f'the plugin "{plugin.name}" brings no server "{meant}"; it brings {", ".join(by_name) or "none"}'


def _on_host(
    brought: Brought,
    args: tuple[str, ...],
    env: dict[str, str],
    written: PluginServer,
    common: dict[str, object],
    here: Here,
) -> PluggedCommand:
    environment, command, path = None, brought.command, _import_path(brought)
    if brought.requirements or brought.packages:
        environment = _environment(brought, here)
    if environment is not None and environment.folder:
        command = brought.command if "/" in brought.command else f"{environment.folder}/bin/{brought.command}"
        path = "" if brought.is_package else path
    elif brought.command in _PYTHONS:
        command = here.python
    if path:
        env["PYTHONPATH"] = ":".join(filter(None, (path, env.get("PYTHONPATH", ""))))
    return PluggedCommand(
        command=command,
        args=args,
        env=env,
        port=brought.port,
        plugin=written.plugin,
        source=brought.source,
        environment=environment,
        **common,  # pyright: ignore[reportArgumentType] -- the fields of Server
    )


def _import_path(brought: Brought) -> str:
    """The folder from which its code is imported."""
    if brought.host_source is None:
        return ""
    return brought.host_source.rpartition("/")[0] if brought.is_package else brought.host_source


def _environment(brought: Brought, here: Here) -> Environment:
    if not brought.requirements:
        return Environment("", (), packages=brought.packages)
    requirements = (*brought.requirements, *image.ALWAYS)
    links = {"mooring": here.library}
    if brought.host_source is not None and brought.is_package:
        links[brought.host_source.rpartition("/")[2]] = brought.host_source
    seen = "\0".join((here.python, here.version, *requirements, *(f"{a}={b}" for a, b in links.items())))
    digest = hashlib.sha256(seen.encode()).hexdigest()[:16]
    folder = f"{here.state}/plugins/environments/{digest}"
    return Environment(folder, requirements, links, brought.packages)
