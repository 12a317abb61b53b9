"""One agent: open it, run prompts, hear what happens, change its tools. The same for every kind.

    async with pool.agent("writer") as agent:
        result = await agent.run("...")

The adapter of its kind does the rest; it is imported when the agent is opened. Runs of one agent follow each other and
share a conversation; parallel work takes several agents, or further sessions of one (``agent.session()``).
"""

from __future__ import annotations

import asyncio
import glob
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from mooring.agents.events import AnyEvent, Finished, Text, ToolCall
from mooring.agents.extras import adapter
from mooring.agents.layers import OWN
from mooring.agents.seat import Run, Seat
from mooring.agents.tools import Tools, imported
from mooring.errors import ConfigError, MooringError

if TYPE_CHECKING:
    from mooring.agents.pool import AgentPool

ENDING = 5.0
"""Seconds that a run which was cancelled has to end by itself."""
_log = logging.getLogger("mooring")
Tell = Callable[[AnyEvent], None]


class Driver(Protocol):
    """One conversation with one kind of agent."""

    async def run(self, prompt: str, tell: Tell) -> None:
        """Carry out a prompt, telling what happens; a failure of the agent is raised as MooringError."""
        ...

    async def interrupt(self) -> None:
        """Ask the agent to end the run that goes on; ``run`` returns soon after."""
        ...

    async def refresh(self) -> None:
        """Make the agent's program see its servers and tools as they are now, from its next turn on."""
        ...


Opened = Callable[[Seat], AbstractAsyncContextManager[Driver]]
"""What each adapter module has as ``opened``."""


class Result(msgspec.Struct, frozen=True):
    """What a run came to."""

    text: str
    """What the agent said at the end."""
    stop: str
    """``done`` | ``cancelled`` | ``aborted`` | ``failed``"""
    calls: tuple[str, ...] = ()
    """The tools it called, in order."""


def outcome(last: Finished, calls: list[str]) -> Result:
    """The result that a run's last event and its calls come to. Pure."""
    return Result(last.text, last.stop, tuple(calls))


class Agent:
    """An agent of a pool; an async context manager, which starts and ends its program."""

    def __init__(self, pool: AgentPool, workspace: str, seat: Seat) -> None:
        self._pool = pool
        self._seat = seat
        self._name = seat.agent.name
        self._stack = AsyncExitStack()
        self._driver: Driver | None = None
        self._door = asyncio.Lock()
        """Held while it is opened or closed: who comes meanwhile finds it one or the other."""
        self._turn = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None
        self._cancelled = False
        self._shown: tuple[Any, ...] = ()
        """What the program was last shown: servers it connects to itself, and tools of Mooring."""
        self.workspace = workspace
        self.borrowed = asyncio.Lock()
        """Held by the team that runs it, since it opens it and closes it."""

    @property
    def name(self) -> str:
        """As configured."""
        return self._name

    @property
    def tools(self) -> Tools:
        """Its own Python functions."""
        return self._seat.tools

    async def __aenter__(self) -> Self:
        """Start it. Raises MooringError; LaunchMissing when its program or its library is not installed."""
        async with self._door:
            if self._driver is not None:
                raise MooringError(f'The agent "{self.name}" is open already; agent.session() makes another one.')
            if not self._pool.knows(self):
                raise ConfigError(f'This session of "{self.name}" is over; agent.session() makes another one.')
            opened: Opened = adapter(self._seat.agent.type).opened
            functions = imported(self._seat.agent.tools)
            async with AsyncExitStack() as stack:
                await self._seat.open()
                stack.push_async_callback(self._seat.close)
                if functions and not self.tools.names:
                    await self.tools.add(*functions)
                self._pool.opened(self)
                stack.callback(self._pool.closed, self)
                driver = await stack.enter_async_context(opened(self._seat))
                self._shown = await self._offers()
                self._driver, self._stack = driver, stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it, with a run that goes on."""
        async with self._door:
            try:
                await self.cancel()
            finally:
                self._driver = None
                try:
                    await self._stack.aclose()
                finally:
                    await self._pool.left(self)

    async def run(self, prompt: str, *, deps: Any = None) -> Result:
        """Let it answer a prompt; ``deps`` is what its functions find in their context. Raises MooringError."""
        calls: list[str] = []
        async with aclosing(self.stream(prompt, deps=deps)) as events:
            async for event in events:
                if isinstance(event, ToolCall):
                    calls.append(event.tool)
                elif isinstance(event, Finished):
                    return outcome(event, calls)
        raise MooringError(f'The run of "{self.name}" ended without a result.')

    async def stream(self, prompt: str, *, deps: Any = None) -> AsyncGenerator[AnyEvent]:
        """The same, event by event; the last is ``Finished``. Leaving it early cancels the run (close it, such as with
        ``contextlib.aclosing``). Raises MooringError."""
        async with self._turn:
            self._cancelled = False
            driver = self._open()
            await self._refreshed(driver)
            if self._cancelled:  # or closed
                yield Finished(agent=self.name, text="", stop="cancelled")
                return
            queue: asyncio.Queue[AnyEvent | None] = asyncio.Queue()
            run = self._seat.run = Run(deps)
            run.abort = self._abort
            task = self._running = asyncio.create_task(driver.run(prompt, queue.put_nowait))
            task.add_done_callback(lambda _: queue.put_nowait(None))
            said: list[str] = []
            try:
                while (event := await queue.get()) is not None:
                    if isinstance(event, ToolCall):
                        said.clear()
                    elif isinstance(event, Text):
                        said.append(event.text)
                    yield msgspec.structs.replace(event, agent=self.name)
                yield self._finished(task, run, "".join(said))
            finally:
                await self._ended(task, driver)
                self._seat.run = self._running = None

    async def cancel(self) -> None:
        """End the run that goes on, if there is one; it finishes as "cancelled". Bounded."""
        task, driver = self._running, self._driver
        if task is None:
            self._cancelled = True  # one that is still shown what changed does not begin
        elif driver is not None and not task.done():
            self._cancelled = True
            await self._ended(task, driver)

    async def refresh_tools(self) -> list[str]:
        """Make its program see the servers and tools as they are now; the names of the tools it has through Mooring.
        Raises MooringError."""
        async with self._turn:
            await self._refreshed(self._open(), always=True)
        return [tool["name"] for tool in await self._seat.listed()]

    async def add_server(self, name: str, definition: Mapping[str, Any] | None = None) -> None:
        """Give this session one more server: one that is configured, or a definition as in ``[mcp_servers.NAME]``.
        Raises ConfigError."""
        await self._pool.give(self.workspace, name, definition)

    async def remove_server(self, name: str) -> None:
        """Take a server away that ``add_server`` gave. Raises ConfigError."""
        await self._pool.take(self.workspace, name)

    async def disable(self, tool: str) -> None:
        """Switch a tool off, whichever server it is of: it is neither offered nor carried out. Raises ConfigError."""
        await self._switch(tool, on=False)

    async def enable(self, tool: str) -> None:
        """Switch it on again. Raises ConfigError."""
        await self._switch(tool, on=True)

    async def session(self) -> Agent:
        """One more session of the same agent: with the same configuration and session servers as data, and with
        connections, a key and own functions of its own; to be opened like this one, but once. Its end
        leaves this one alone."""
        return await self._pool.session_of(self)

    def touched(self) -> None:
        """Something of the agent changed; the next run begins with a look."""
        self._seat.touched()

    async def _switch(self, tool: str, *, on: bool) -> None:
        if tool.startswith(f"{OWN}_") and tool.removeprefix(f"{OWN}_") in self.tools.names:
            own = tool.removeprefix(f"{OWN}_")
            await (self.tools.enable(own) if on else self.tools.disable(own))
            return
        server, upstream = self._pool.behind(self.workspace, tool)
        await self._pool.switch(self.workspace, server, glob.escape(upstream), on=on)

    def _open(self) -> Driver:
        if self._driver is None:
            raise ConfigError("The agent is not open: use it as an async context manager.")
        return self._driver

    async def _refreshed(self, driver: Driver, *, always: bool = False) -> None:
        """Show the program what changed since it was last shown."""
        if not (self._seat.stale or always):
            return
        self._seat.stale = False
        try:
            offers = await self._offers()
            if offers != self._shown or always:
                await driver.refresh()
                self._shown = offers
        except BaseException:
            self._seat.stale = True
            raise

    async def _offers(self) -> tuple[Any, ...]:
        return self._seat.agent.direct, await self._seat.listed()

    def _abort(self) -> None:
        """A person refused a call and with it the run. The call's answer goes out first."""
        driver = self._driver
        if driver is not None:
            self._pool.tasks.create_task(driver.interrupt())

    def _finished(self, task: asyncio.Task[None], run: Run, said: str) -> Finished:
        stop = "aborted" if run.aborted else "cancelled" if self._cancelled or task.cancelled() else "done"
        error = None if task.cancelled() else task.exception()
        if error is not None and stop == "done":
            raise error
        return Finished(agent=self.name, text=said, stop=stop)

    async def _ended(self, task: asyncio.Task[None], driver: Driver) -> None:
        if task.done():
            return
        try:
            async with asyncio.timeout(ENDING):
                await driver.interrupt()
                await asyncio.wait((task,))
        except Exception as error:  # such as one of an adapter's library
            _log.warning('The agent "%s" was not interrupted in its own way: %s', self.name, error or "too late")
        finally:
            task.cancel()
            await asyncio.wait((task,), timeout=ENDING)
