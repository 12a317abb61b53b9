"""What was changed about agents at run time, as data laid over the configuration. Pure.

Kept apart from the files, which stay as they were written, so that a reload keeps the changes and the changes keep the
files. Applied between loading and resolving.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mooring.config import decode, references
from mooring.config.fault import Fault
from mooring.config.schema import Config, Loaded, Session
from mooring.config.schema_agents import Agent as AgentTable
from mooring.config.schema_agents import Grant, Layer, MountTable
from mooring.config.schema_servers import AnyServer, Tools
from mooring.errors import ConfigError


class Edits(msgspec.Struct):
    """All changes since the pool was opened."""

    servers: dict[str, AnyServer] = {}
    """Definitions."""
    agents: dict[str, AgentTable | None] = {}
    """None: removed."""
    given: dict[str, dict[str, bool]] = {}
    """Layer to servers, given or taken; a layer is ``agent_pool``, ``teams.NAME``, ``agents.NAME``, or a workspace for
    its session."""
    members: dict[str, dict[str, bool]] = {}
    """Team to agents: joined or left."""
    denied: dict[str, dict[str, tuple[str, ...]]] = {}
    """Workspace to servers to globs on tools that are switched off there."""
    routed: dict[str, tuple[str, ...]] = {}
    """Workspace to servers that go through Mooring, whatever is configured."""
    sessions: dict[str, str] = {}
    """Workspace of a further session to its agent."""


def definition(table: str, name: str, content: Mapping[str, Any]) -> Any:
    """One entry of a table as if it had been written. Raises ConfigError."""
    try:
        return getattr(decode.config({table: {name: dict(content)}}), table)[name]
    except Fault as fault:
        raise ConfigError(fault.message, path=".".join(map(str, fault.path))) from None


def edited(loaded: Loaded, edits: Edits) -> Loaded:
    """The configuration with the changes. Raises ConfigError when they do not go together."""
    config = loaded.config
    agents = {**config.agents, **edits.agents}
    config = msgspec.structs.replace(
        config,
        mcp_servers={**config.mcp_servers, **edits.servers},
        agents={name: agent for name, agent in agents.items() if agent is not None},
    )
    config = msgspec.structs.replace(
        config,
        agent_pool=_layer(config.agent_pool, edits.given.get("agent_pool", {})),
        agents={name: _layer(agent, edits.given.get(f"agents.{name}", {})) for name, agent in config.agents.items()},
        teams={
            name: msgspec.structs.replace(
                _layer(team, edits.given.get(f"teams.{name}", {})),
                members=tuple(
                    member
                    for member in _changed(team.members, edits.members.get(name, {}))
                    if member in config.agents or member not in edits.agents
                ),
            )
            for name, team in config.teams.items()
        },
    )
    try:
        references.check(config)
    except Fault as fault:
        raise loaded.error(fault.message, fault.path) from None
    return msgspec.structs.replace(loaded, config=config, sessions=_sessions(config, edits))


def _sessions(config: Config, edits: Edits) -> dict[str, Session]:
    """The sessions that are there besides, or that have something of their own."""
    owners = {**{f"agent/{name}": name for name in config.agents}, **edits.sessions}
    found: dict[str, Session] = {}
    for workspace, agent in owners.items():
        if agent not in config.agents:
            continue
        layer = _session(edits, workspace)
        if workspace in edits.sessions or layer != Layer():
            found[workspace] = Session(agent, layer)
    return found


def _session(edits: Edits, workspace: str) -> Layer:
    denied = edits.denied.get(workspace, {})
    mounts = {server: MountTable(tools=Tools(deny=globs)) for server, globs in denied.items() if globs}
    for server in edits.routed.get(workspace, ()):
        mounts[server] = msgspec.structs.replace(mounts.get(server, MountTable()), via="mooring")
    return Layer(
        mcp_servers=tuple(name for name, there in edits.given.get(workspace, {}).items() if there),
        mcp={server: Grant(mount=mount) for server, mount in mounts.items()},
    )


def _layer(layer: Any, changes: Mapping[str, bool]) -> Any:
    return msgspec.structs.replace(layer, mcp_servers=_changed(layer.mcp_servers, changes)) if changes else layer


def _changed(names: tuple[str, ...], changes: Mapping[str, bool]) -> tuple[str, ...]:
    kept = tuple(name for name in names if changes.get(name, True))
    return (*kept, *(name for name, there in changes.items() if there and name not in kept))
