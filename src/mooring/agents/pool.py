"""The agents of a configuration together: who there is, which teams they form, and what changes while they run.

``Mooring.agents()`` gives one. A change of a layer reaches every agent below it at once: the workspaces are compiled
anew, open sessions are told, and what an agent's program does not notice by itself it is shown before its next turn.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from mooring.agents.agent import Agent
from mooring.agents.edits import Edits, definition
from mooring.agents.handler import Handler
from mooring.agents.layers import ROOM
from mooring.agents.seat import Ground, Seat
from mooring.agents.team import Team
from mooring.config.plan import Plan
from mooring.errors import ConfigError
from mooring.tasks import Tasks


class Changing(Ground, Protocol):
    """Ground whose configuration can be edited."""

    async def edit(self, change: Callable[[Edits], None]) -> None:
        """Change what lies over the configuration and apply it. Raises ConfigError, with nothing changed."""
        ...

    def behind(self, workspace: str, tool: str) -> tuple[str, str] | None:
        """Server and upstream name of an advertised tool, also of one that is switched off."""
        ...


class AgentPool:
    """All agents. An async context manager through ``Mooring.agents``."""

    def __init__(self, ground: Changing, handler: Handler, tasks: Tasks) -> None:
        self.tasks = tasks
        self._ground = ground
        self._handler = handler
        self._agents: dict[str, Agent] = {}
        self._open: set[Agent] = set()
        self._numbers = itertools.count(1)
        self._further: set[str] = set()
        """Workspaces of further sessions."""
        self._over: set[str] = set()
        """Those of sessions that are over, until the configuration is without them."""
        self._closing = False

    @property
    def names(self) -> list[str]:
        """The agents there are."""
        return list(dict.fromkeys(agent.name for agent in self._ground.plan.agents.values()))

    @property
    def teams(self) -> list[str]:
        """The teams there are."""
        return list(self._ground.plan.teams)

    def agent(self, name: str) -> Agent:
        """An agent, the same object each time. Raises ConfigError."""
        if name not in self.names:
            raise ConfigError(f'There is no agent "{name}". Agents: {", ".join(self.names) or "none"}.')
        return self._made(ROOM + name)

    def team(self, name: str) -> Team:
        """A team. Raises ConfigError."""
        if name not in self.teams:
            raise ConfigError(f'There is no team "{name}". Teams: {", ".join(self.teams) or "none"}.')
        return Team(self, name)

    async def add_server(self, name: str, definition: Mapping[str, Any] | None = None) -> None:
        """Give all agents a server: one that is configured, or a definition as in ``[mcp_servers.NAME]``. Raises
        ConfigError."""
        await self.give("agent_pool", name, definition)

    async def remove_server(self, name: str) -> None:
        """Take a server from the agent pool. Raises ConfigError."""
        await self.take("agent_pool", name)

    async def add_agent(self, name: str, table: Mapping[str, Any], teams: tuple[str, ...] = ()) -> Agent:
        """One more agent, as in ``[agents.NAME]``, in these teams. Raises ConfigError."""
        made = definition("agents", name, table)
        if name in self.names:
            raise ConfigError(f'There is an agent "{name}" already.')

        def change(edits: Edits) -> None:
            edits.agents[name] = made
            for team in teams:
                edits.members.setdefault(team, {})[name] = True

        await self._edit(change)
        return self.agent(name)

    async def give(self, layer: str, name: str, table: Mapping[str, Any] | None = None) -> None:
        """Give a layer a server. Raises ConfigError."""
        made = None if table is None else definition("mcp_servers", name, table)

        def change(edits: Edits) -> None:
            if made is not None:
                edits.servers[name] = made
            edits.given.setdefault(layer, {})[name] = True

        await self._edit(change)

    async def take(self, layer: str, name: str) -> None:
        """Take a server from a layer. Raises ConfigError."""
        await self._edit(lambda edits: edits.given.setdefault(layer, {}).update({name: False}))

    async def join(self, team: str, agent: str, *, member: bool) -> None:
        """Let an agent be a member of a team, or not. Raises ConfigError."""
        await self._edit(lambda edits: edits.members.setdefault(team, {}).update({agent: member}))

    async def switch(self, workspace: str, server: str, glob: str, *, on: bool) -> None:
        """Switch tools of a server on or off for one session. Raises ConfigError."""

        def change(edits: Edits) -> None:
            denied = edits.denied.setdefault(workspace, {})
            others = tuple(known for known in denied.get(server, ()) if known != glob)
            denied[server] = others if on else (*others, glob)

        await self._edit(change)

    def behind(self, workspace: str, tool: str) -> tuple[str, str]:
        """Server and upstream name of an advertised tool. Raises ConfigError."""
        found = self._ground.behind(workspace, tool)
        if found is None:
            raise ConfigError(f'There is no tool "{tool}" that could be switched on or off.')
        return found

    async def session_of(self, agent: Agent) -> Agent:
        """See ``Agent.session``."""
        workspace = f"{ROOM}{agent.name}/{next(self._numbers)}"

        def change(edits: Edits) -> None:
            edits.sessions[workspace] = agent.name
            for kept in (edits.given, edits.denied):
                if agent.workspace in kept:
                    kept[workspace] = copy.deepcopy(kept[agent.workspace])  # pyright: ignore[reportArgumentType]

        await self._edit(change)
        self._further.add(workspace)
        return self._made(workspace)

    def opened(self, agent: Agent) -> None:
        """An agent was opened: it is told of changes."""
        self._open.add(agent)

    def closed(self, agent: Agent) -> None:
        """It was closed."""
        self._open.discard(agent)

    def knows(self, agent: Agent) -> bool:
        """Whether it can be opened."""
        return self._agents.get(agent.workspace) is agent

    async def left(self, agent: Agent) -> None:
        """An agent was closed: a further session is over then, and nothing is kept of it."""
        workspace = agent.workspace
        if workspace not in self._further or self._closing:
            return
        self._further.discard(workspace)
        del self._agents[workspace]
        self._over.add(workspace)
        with suppress(ConfigError):  # a configuration that is not valid now keeps nobody from leaving
            await self._edit(lambda _: None)

    def applied(self, plan: Plan) -> None:
        """Another plan holds."""
        for agent in self._open:
            agent.touched()

    async def close(self) -> None:
        """End all agents that are still open, at the same time."""
        self._closing = True
        await asyncio.gather(
            *(agent.__aexit__(None, None, None) for agent in tuple(self._open)), return_exceptions=True
        )

    async def _edit(self, change: Callable[[Edits], None]) -> None:
        over = frozenset(self._over)

        def changed(edits: Edits) -> None:
            for kept in (edits.sessions, edits.given, edits.denied, edits.routed):
                for workspace in over:
                    kept.pop(workspace, None)
            change(edits)

        await self._ground.edit(changed)
        self._over -= over

    def _made(self, workspace: str) -> Agent:
        if workspace not in self._agents:
            self._agents[workspace] = Agent(self, workspace, Seat(self._ground, workspace, self._handler))
        return self._agents[workspace]

    def members(self, team: str) -> tuple[str, ...]:
        """The members of a team now."""
        return self._ground.plan.teams.get(team, ())

    def is_open(self, agent: Agent) -> bool:
        """Whether it can run a prompt."""
        return agent in self._open
