"""One life of an instance, from the start to the moment when everything about it is gone.

``live`` is run by the instance's owner task, which thus enters and leaves the opener's block itself. The life reports
to its instance and decides nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Protocol

from mooring.config.plan import Variant
from mooring.instances import rules
from mooring.instances.chores import Chores
from mooring.instances.failures import crash_reason
from mooring.instances.health import alive
from mooring.instances.opener import Birth, Demand, Means, Running
from mooring.nouns import InstanceKey

LAST_WORDS = 0.5
"""Seconds after a crash for the rest: answers still in the pipe, the exit code."""


class Owner(Protocol):
    """The instance, as its life sees it. All of these are synchronous."""

    variant: Variant
    """As it is configured now, which may have other limits than at the start."""

    def published(self, life: Life, running: Running) -> None:
        """The server answers MCP: leases may be had."""
        ...

    def lost(self, life: Life) -> None:
        """The conversation or the server ended by itself."""
        ...

    def mute(self, life: Life) -> None:
        """The server did not answer a ping."""
        ...

    def post_mortem(self, life: Life) -> None:
        """After ``lost``: all that can be known of the end is known."""
        ...


class Life:
    """``demand``: what a session that has the instance to itself asks of it."""

    def __init__(self, variant: Variant, key: InstanceKey, demand: Demand | None, means: Means, owner: Owner) -> None:
        self.chores: Chores | None = None
        self.running: Running | None = None
        self._variant = variant
        self._key = key
        self._means = means
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._limit = asyncio.timeout(None)
        self.birth = Birth(demand, variant.timeouts, self._limit)
        self._ending: asyncio.Future[None] = self._loop.create_future()

    async def live(self) -> None:
        """Start, serve until told to end, end. Raises whatever the opener's block raises."""
        async with self._limit, AsyncExitStack() as stack:
            if rules.counted(self._variant):
                await stack.enter_async_context(self._means.room.place(self._variant.server))
            async with self._means.permits:
                self.birth.phase("start")
                running = await stack.enter_async_context(self._means.open(self._variant, self._key, self.birth))
            self.birth.spawned(running.launched)
            try:
                if not self._ending.done():
                    await self._serve(running)
            finally:
                self._limit.reschedule(self._loop.time() + rules.leaving_limit(self._variant.timeouts))
            if self.over:
                await self._last_words(running)

    def end(self) -> None:
        """Leave the block now: call the start off, or stop serving."""
        self.birth.call_off()
        if not self._ending.done():
            self._ending.set_result(None)

    @property
    def timed_out(self) -> bool:
        """A time limit ended it."""
        return self._limit.expired()

    @property
    def over(self) -> bool:
        """The conversation or the server ended."""
        running = self.running
        return running is not None and (running.connection.closed.done() or running.launched.exited.done())

    @property
    def exit_code(self) -> int | None:
        """Exit code, if it is known."""
        return _value(self.running.launched.exited) if self.running else None

    def why(self) -> str:
        """How it ended, as far as is known."""
        closed = _value(self.running.connection.closed) if self.running else None
        return crash_reason(self.exit_code, closed or "", self.unkept)

    @property
    def unkept(self) -> bool:
        """It was ended together with what kept it, for which the server is not to blame."""
        launched = self.birth.launched
        return launched is not None and launched.exited.done() and _value(launched.exited) is None

    async def _serve(self, running: Running) -> None:
        connection = running.connection
        self.running = running
        self.birth.over()
        self._limit.reschedule(None)
        self.chores = Chores(
            lambda: self._means.listed(self._owner.variant, self._key, connection, self.birth.demand),
            lambda: self._owner.variant.timeouts.discover,
            partial(alive, connection, self._means.complete),
            partial(self._owner.mute, self),
        )
        connection.closed.add_done_callback(lambda _: self._owner.lost(self))
        running.launched.exited.add_done_callback(lambda _: self._owner.lost(self))
        async with self.chores:
            self._owner.published(self, running)
            await self._ending

    async def _last_words(self, running: Running) -> None:
        rest: set[asyncio.Future[Any]] = {running.connection.closed}
        if running.launched.pid is not None:
            rest.add(running.launched.exited)
        await asyncio.wait(rest, timeout=LAST_WORDS)
        self._owner.post_mortem(self)


def _value(future: asyncio.Future[Any]) -> Any:
    return future.result() if future.done() and not future.cancelled() else None
