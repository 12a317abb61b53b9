"""What goes on beside the calls while an instance is ready: its lists are taken, and a doubt about it is cleared up.

One for each life of an instance, entered by its owner task; leaving it ends these tasks. Neither pins the instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Self

from mooring.errors import Unavailable

DEBOUNCE = 0.2
"""Seconds between a server's "list changed" and the new listing, so that a burst costs one."""
ENDING = 1.0
"""Seconds that a cancelled chore has to end."""


class Chores:
    """``take`` lists once, bounded by the seconds that ``limit`` gives then; ``alive`` asks for a sign of life;
    ``mute`` is called when none came."""

    def __init__(
        self,
        take: Callable[[], Awaitable[None]],
        limit: Callable[[], float],
        alive: Callable[[], Awaitable[bool]],
        mute: Callable[[], None],
    ) -> None:
        self.problem = ""
        """Why the last listing failed; "" when it did not."""
        self._take = take
        self._limit = limit
        self._alive = alive
        self._mute = mute
        self._again = asyncio.Event()
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._probe: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._start(self._list())
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._first.done():
            self.problem = self.problem or "it ended before it was listed"
            self._first.set_result(None)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ENDING)

    def relist(self) -> None:
        """The server says that its lists changed."""
        self._again.set()

    def suspect(self) -> None:
        """A call timed out: find out whether the server still answers."""
        if self._probe is None or self._probe.done():
            self._probe = self._start(self._check())

    async def listed(self) -> None:
        """Wait until the first listing is over. Raises Unavailable when it failed."""
        await asyncio.shield(self._first)
        if self.problem:
            raise Unavailable(self.problem, phase="discover")

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _list(self) -> None:
        while True:
            await self._take_once()
            if not self._first.done():
                self._first.set_result(None)
            await self._again.wait()
            await asyncio.sleep(DEBOUNCE)
            self._again.clear()

    async def _take_once(self) -> None:
        seconds = self._limit()
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._take()
            self.problem = ""
        except Exception as error:  # a server whose lists cannot be had may still serve calls
            late = limit.expired()
            slow = f"did not list what it offers within {seconds:g} s (timeouts.discover sets the limit)"
            self.problem = slow if late else f"listing: {error}"

    async def _check(self) -> None:
        if not await self._alive():
            self._mute()
