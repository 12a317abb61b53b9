"""Whether every name that the configuration uses is defined in it. Pure; called by ``config.load``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mooring.config.fault import Fault
from mooring.config.names import did_you_mean
from mooring.config.schema import Config, Workspace
from mooring.config.schema_agents import Layer
from mooring.config.schema_base import Path


def check(config: Config) -> None:
    """Raises Fault for the first name that is not defined, or means two things."""
    _check_groups(config)
    for layer, path in _layers(config):
        _check_layer(config, layer, path)
    for name, workspace in config.workspaces.items():
        _check_workspace(config, workspace, ("workspaces", name))
    for name, team in config.teams.items():
        for position, member in enumerate(team.members):
            _defined(member, config.agents, "agent", ("teams", name, "members", position))


def expand(config: Config, granted: Iterable[str]) -> Iterator[str]:
    """The servers behind names, groups and ``"*"``, in order, each once."""
    seen: dict[str, None] = {}
    for name in granted:
        if name == "*":
            seen |= dict.fromkeys(config.mcp_servers)
        else:
            seen |= dict.fromkeys(config.mcp_groups.get(name, (name,)))
    return iter(seen)


def _layers(config: Config) -> Iterator[tuple[Layer, Path]]:
    yield config.agent_pool, ("agent_pool",)
    for table, layers in (("workspaces", config.workspaces), ("teams", config.teams), ("agents", config.agents)):
        for name, layer in layers.items():
            yield layer, (table, name)


def _check_groups(config: Config) -> None:
    for name, members in config.mcp_groups.items():
        if name in config.mcp_servers:
            raise Fault(f'"{name}" is a server too; a group needs a name of its own', ("mcp_groups", name))
        for position, member in enumerate(members):
            path = ("mcp_groups", name, position)
            if member in config.mcp_groups:
                raise Fault(f'"{member}" is a group; groups hold servers only', path)
            _defined(member, config.mcp_servers, "server", path)


def _check_workspace(config: Config, workspace: Workspace, path: Path) -> None:
    granted = set(expand(config, workspace.mcp_servers))
    for server, grant in workspace.mcp.items():
        if server not in granted:
            raise Fault(f'"{server}" is not in mcp_servers of "{path[-1]}"; add it there', (*path, "mcp", server))
        if grant.mount.via is not None:
            raise Fault("via is for agents", (*path, "mcp", server, "mount", "via"))


def _check_layer(config: Config, layer: Layer, path: Path) -> None:
    known = {*config.mcp_servers, *config.mcp_groups, "*"}
    for position, name in enumerate(layer.mcp_servers):
        _defined(name, known, "server or group", (*path, "mcp_servers", position))
    for server, grant in layer.mcp.items():
        _defined(server, config.mcp_servers, "server", (*path, "mcp", server))
        for position, preset in enumerate(grant.presets):
            _defined(preset, config.mcp_presets, "preset", (*path, "mcp", server, "presets", position))


def _defined(name: str, known: Iterable[str], what: str, path: Path) -> None:
    if name not in known:
        raise Fault(f'unknown {what} "{name}"{did_you_mean(name, known)}', path)
