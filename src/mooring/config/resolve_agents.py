"""The agents of the plan, and the workspaces that ``agents.layers`` compiles for them. Pure.

Called by ``config.resolve`` when the configuration has agents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring.agents import layers
from mooring.config import launches, plan
from mooring.config.fault import Fault
from mooring.config.plan_servers import Process, Remote
from mooring.config.schema_agents import Grant
from mooring.config.schema_base import Path
from mooring.nouns import AgentServerRow

if TYPE_CHECKING:
    from mooring.config.resolve import Resolver


def resolved(resolver: Resolver, workspaces: dict[str, plan.Workspace]) -> dict[str, plan.Agent]:
    """All agents; the workspace of each is added to ``workspaces``."""
    agents: dict[str, plan.Agent] = {}
    for workspace, session in layers.sessions(resolver.config, resolver.loaded.sessions).items():
        place: Path = ("agents", session.agent)
        compiled = layers.compiled(resolver.config, session)
        workspaces[workspace] = resolver.workspace(workspace, compiled.workspace, place)
        direct = tuple(
            _direct(resolver, workspace, place, row, compiled.direct[row.server])
            for row in compiled.rows
            if row.way == "direct"
        )
        _check_own(workspaces[workspace], direct, place)
        agents[workspace] = _agent(resolver, workspace, session.agent, direct, compiled.rows)
    return agents


def _agent(
    resolver: Resolver, workspace: str, name: str, direct: tuple[plan.Direct, ...], rows: tuple[AgentServerRow, ...]
) -> plan.Agent:
    written = resolver.config.agents[name]
    path: Path = ("agents", name)
    launch = launches.agent(written, resolver.site(path))
    if launch is not None:
        resolver.missing_secrets(name, launch, path)
    return plan.Agent(
        name=name,
        workspace=workspace,
        type=written.type,
        launch=launch,
        model=written.model or "",
        prompt=written.prompt or "",
        confirm=written.confirm,
        tools=written.tools,
        direct=direct,
        servers=rows,
    )


def _direct(resolver: Resolver, workspace: str, place: Path, row: AgentServerRow, grant: Grant) -> plan.Direct:
    server, gateway = resolver.config.mcp_servers[row.server], resolver.config.gateway
    launch = resolver.launch(workspace, row.server, server, dict(grant.kwargs), (*place, "mcp", row.server))
    assert isinstance(launch, Process | Remote)
    start = float(server.timeouts.start or gateway.start_timeout)
    return plan.Direct(row.server, row.prefix, launch, start, float(server.timeouts.call or gateway.call_timeout))


def _check_own(workspace: plan.Workspace, direct: tuple[plan.Direct, ...], place: Path) -> None:
    """Tools that an agent brings itself have a prefix of their own."""
    for taken in (*workspace.mounts, *direct):
        if taken.prefix in (layers.OWN, ""):
            raise Fault(
                f'"{taken.server}" gets the prefix "{taken.prefix}", which no server of an agent can have '
                f'("{layers.OWN}" is for its own functions); give it another: mount = {{ prefix = "..." }}',
                (*place, "mcp_servers"),
            )
