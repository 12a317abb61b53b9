"""Agents that are given the same servers, and the same prompts: a team runs no tools itself, its members do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any

from mooring.agents.agent import Result, outcome
from mooring.agents.events import AnyEvent, Finished, ToolCall
from mooring.errors import MooringError
from mooring.tasks import Tasks

if TYPE_CHECKING:
    from mooring.agents.pool import AgentPool

_log = logging.getLogger("mooring")


class Team:
    """A team of a pool. ``AgentPool.team`` makes it."""

    def __init__(self, pool: AgentPool, name: str) -> None:
        self.name = name
        self._pool = pool

    @property
    def members(self) -> tuple[str, ...]:
        """Names of agents."""
        return self._pool.members(self.name)

    async def add(self, agent: str) -> None:
        """An agent joins: it has the team's servers from now on. Raises ConfigError."""
        await self._pool.join(self.name, agent, member=True)

    async def remove(self, agent: str) -> None:
        """An agent leaves. Raises ConfigError."""
        await self._pool.join(self.name, agent, member=False)

    async def add_server(self, name: str, definition: Mapping[str, Any] | None = None) -> None:
        """Give all members a server. Raises ConfigError."""
        await self._pool.give(f"teams.{self.name}", name, definition)

    async def remove_server(self, name: str) -> None:
        """Take a server from all members. Raises ConfigError."""
        await self._pool.take(f"teams.{self.name}", name)

    async def run(self, prompt: str, *, deps: Any = None) -> dict[str, Result]:
        """Give every member the prompt, all at the same time; member to its result. One that cannot be run has the stop
        "failed", and the reason as its text."""
        results: dict[str, Result] = {}
        calls: dict[str, list[str]] = {name: [] for name in self.members}
        async with aclosing(self.stream(prompt, deps=deps)) as events:
            async for event in events:
                if isinstance(event, ToolCall):
                    calls[event.agent].append(event.tool)
                elif isinstance(event, Finished):
                    results[event.agent] = outcome(event, calls[event.agent])
        return results

    async def stream(self, prompt: str, *, deps: Any = None) -> AsyncGenerator[AnyEvent]:
        """The events of all members as they come, each with the member's name. Members that are not open are opened for
        it."""
        queue: asyncio.Queue[AnyEvent] = asyncio.Queue()
        async with Tasks() as tasks:
            members = self.members
            for name in members:
                tasks.create_task(self._member(name, prompt, deps, queue))
            left = len(members)
            while left:
                event = await queue.get()
                left -= isinstance(event, Finished)
                yield event

    async def _member(self, name: str, prompt: str, deps: Any, queue: asyncio.Queue[AnyEvent]) -> None:
        try:
            async with AsyncExitStack() as stack:
                agent = self._pool.agent(name)
                await stack.enter_async_context(agent.borrowed)
                if not self._pool.is_open(agent):
                    await stack.enter_async_context(agent)
                events = await stack.enter_async_context(aclosing(agent.stream(prompt, deps=deps)))
                last: AnyEvent | None = None
                async for event in events:
                    if isinstance(event, Finished):
                        last = event
                    else:
                        queue.put_nowait(event)
            if last is not None:
                queue.put_nowait(last)
        except Exception as error:  # one member's failure is none of the others'
            if not isinstance(error, MooringError):
                _log.exception("The agent %s failed", name)
            queue.put_nowait(Finished(agent=name, text=str(error) or type(error).__name__, stop="failed"))
