"""From layers to one workspace: what agent pool, teams, the agent itself and its session give it. Pure.

Called by ``config.resolve_agents`` for each agent, so that nothing behind the plan needs a case for agents. Precedence,
the nearest last: agent pool, the agent's teams in the order of the configuration, the agent, the session.

- A server that several layers name is there once. Its kwargs merge like presets: what a nearer layer says replaces, its
  lists append; the nearest layer that says anything is treated as a workspace's own table (its lists replace, and
  ``"key+"`` appends). ``prefix``, ``sharing``, ``via`` and the ``allow`` of a filter: the nearest that says it. What a
  filter denies or wants confirmed holds from whichever layer it comes.
- Two servers with one prefix: the one that the nearer layer names is offered, the other is not. In one layer it is an
  error, as in a workspace.
- A server goes to an agent by exactly one way. What needs a secret goes through Mooring, whatever ``via`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mooring.config import kwargs as kw
from mooring.config import launches, names
from mooring.config.fault import Fault
from mooring.config.references import expand
from mooring.config.schema import Config, Session, Workspace
from mooring.config.schema_agents import Agent, Grant, Layer, MountTable
from mooring.config.schema_base import Kwarg
from mooring.config.schema_servers import (
    AnyServer,
    CommandServer,
    ImageServer,
    OAuth,
    PluginServer,
    Timeouts,
    Tools,
    UrlServer,
)
from mooring.nouns import AgentServerRow

ROOM = "agent/"
"""What the workspaces of agents begin with; no configured workspace can, since a slash is in none of their names."""
OWN = "own"
"""Prefix of an agent's own functions."""
_IN_PROCESS = ("native", "ag_ui")

Given = tuple[tuple[str, Layer], ...]
"""Layers by label, the nearest last."""


class Compiled(msgspec.Struct, frozen=True):
    """An agent's workspace as if it had been written, the servers it connects to itself, and how that came about."""

    workspace: Workspace
    direct: dict[str, Grant]
    rows: tuple[AgentServerRow, ...]


def sessions(config: Config, run_time: Mapping[str, Session]) -> dict[str, Session]:
    """All sessions by workspace: one for each agent, and those made at run time."""
    return {**{ROOM + name: Session(name) for name in config.agents}, **run_time}


def teams_of(config: Config, agent: str) -> tuple[str, ...]:
    """The teams that have this member, in the order of the configuration."""
    return tuple(name for name, team in config.teams.items() if agent in team.members)


def layers(config: Config, session: Session) -> Given:
    """What gives servers to a session of an agent."""
    teams = tuple((f"teams.{name}", config.teams[name]) for name in teams_of(config, session.agent))
    agent = config.agents[session.agent]
    return (("agent_pool", config.agent_pool), *teams, (f"agents.{session.agent}", agent), ("session", session.layer))


def compiled(config: Config, session: Session) -> Compiled:
    """What a session of an agent is given. Raises Fault."""
    given = layers(config, session)
    agent = config.agents[session.agent]
    origins = _origins(config, given)
    for server in agent.mcp:
        if server not in origins:
            message = f'"{server}" is in no mcp_servers of "{session.agent}", its teams or the agent pool; add it there'
            raise Fault(message, ("agents", session.agent, "mcp", server))
    grants = {server: _merged(config, server, given) for server in origins}
    losers = _overruled(origins, grants, [label for label, _ in given])
    rows: list[AgentServerRow] = []
    for server, labels in origins.items():
        way, why = (
            ("none", losers[server]) if server in losers else _way(agent, config.mcp_servers[server], server, given)
        )
        rows.append(AgentServerRow(server, labels, _prefix(server, grants[server]), way, why))
    direct = {row.server: grants[row.server] for row in rows if row.way == "direct"}
    through = {row.server: grants[row.server] for row in rows if row.way == "mooring"}
    return Compiled(Workspace(mcp_servers=tuple(through), mcp=through), direct, tuple(rows))


def _origins(config: Config, given: Given) -> dict[str, tuple[str, ...]]:
    """Server to the layers that name it, in the order in which they are first named."""
    found: dict[str, tuple[str, ...]] = {}
    for label, layer in given:
        for server in expand(config, layer.mcp_servers):
            found[server] = (*found.get(server, ()), label)
    return found


def _merged(config: Config, server: str, given: Given) -> Grant:
    """What all layers together say about one server."""
    said = [layer.mcp[server] for _, layer in given if server in layer.mcp]
    farther, nearest = said[:-1], (said or [Grant()])[-1]
    presets: list[Mapping[str, Kwarg]] = []
    for grant in farther:
        presets += [*(config.mcp_presets[name] for name in grant.presets), grant.kwargs]
    presets += (config.mcp_presets[name] for name in nearest.presets)
    kwargs = kw.merge(config.mcp_servers[server].defaults, presets, nearest.kwargs)
    return Grant(mount=_mount([grant.mount for grant in said]), kwargs=kwargs)


def _mount(said: Sequence[MountTable]) -> MountTable:
    return MountTable(
        prefix=_nearest(mount.prefix for mount in said),
        sharing=_nearest(mount.sharing for mount in said),
        via=_nearest(mount.via for mount in said),
        tools=Tools(
            allow=_nearest(None if mount.tools.allow == Tools().allow else mount.tools.allow for mount in said)
            or ("*",),
            deny=tuple(dict.fromkeys(glob for mount in said for glob in mount.tools.deny)),
            confirm=tuple(dict.fromkeys(glob for mount in said for glob in mount.tools.confirm)),
        ),
    )


def _nearest(values: Iterable[Any]) -> Any:
    """The last that was said; None when nothing was."""
    return next((value for value in reversed(tuple(values)) if value is not None), None)


def _prefix(server: str, grant: Grant) -> str:
    return names.prefix_of(server if grant.mount.prefix is None else grant.mount.prefix)


def _overruled(
    origins: Mapping[str, tuple[str, ...]], grants: Mapping[str, Grant], order: Sequence[str]
) -> dict[str, str]:
    """Servers that a nearer layer's server takes the prefix of, with the reason."""
    claims: dict[str, list[str]] = {}
    for server in origins:
        claims.setdefault(_prefix(server, grants[server]), []).append(server)
    losers: dict[str, str] = {}
    for prefix, claimed in claims.items():
        nearness = {server: order.index(origins[server][-1]) for server in claimed}
        best = max(nearness.values())
        winner = next(server for server in claimed if nearness[server] == best)
        for server in claimed:
            if nearness[server] < best:
                losers[server] = f'"{winner}" of {origins[winner][-1]} is nearer and has the prefix "{prefix}"'
    return losers


def _way(agent: Agent, server: AnyServer, name: str, given: Given) -> tuple[Any, str]:
    """The way a server goes, and why."""
    chosen = [(layer.mcp[name].mount.via, label) for label, layer in given if name in layer.mcp]
    said = [(via, label) for via, label in chosen if via is not None]
    via, label = said[-1] if said else (agent.via, "the agent's via" if agent.via != "mooring" else "")
    if via == "mooring":
        return "mooring", f"{label} says so" if label else "the usual way"
    obstacle = _obstacle(agent, server, name, given)
    if obstacle:
        return "mooring", f"not direct: {obstacle}"
    return "direct", f"{label} says so"


def _obstacle(agent: Agent, server: AnyServer, name: str, given: Given) -> str:
    """Why an agent cannot connect to a server by itself; "" when it can."""
    if agent.type in _IN_PROCESS:
        return f"an agent of type {agent.type} has no MCP client of its own"
    if not server.enabled:
        return "it is disabled"
    if server.secrets or (isinstance(server, UrlServer) and (server.auth is not None or server.oauth != OAuth())):
        return "it needs a secret, and those go into no agent's configuration"
    if isinstance(server, ImageServer | PluginServer):
        return "Mooring runs it"
    if server.tools != Tools() or any(
        layer.mcp[name].mount.tools != Tools() for _, layer in given if name in layer.mcp
    ):
        return "its tools are filtered or confirmed, which Mooring does"
    if agent.confirm == "always":
        return "every call is confirmed, which Mooring does"
    if not names.BUILT_IN.isdisjoint(kw.placeholders(launches.templates(server))):
        return "Mooring fills placeholders of it at every start"
    return _unlike(agent, server)


def _unlike(agent: Agent, server: CommandServer | UrlServer) -> str:
    """The same for what only some servers have and only some agents lack."""
    if agent.type != "codex" and server.timeouts != Timeouts():
        return "it has time limits of its own, which this agent cannot be told"
    if isinstance(server, UrlServer):
        return "Codex does not speak SSE" if agent.type == "codex" and server.transport == "sse" else ""
    if agent.type != "codex" and server.cwd is not None:
        return "it has a folder of its own, which this agent cannot be told"
    if server.credentials is not None:
        return "it is an SMCP server: it gets its credentials over its stdin"
    if server.port is not None:
        return "Mooring starts it and connects to its port"
    return "Mooring confines it" if server.sandbox else ""
