"""How many servers may run at once, and which of them makes room for the next. Opened and asked by ``instances.life``.

A place is held from before the first step of a start until everything about that life is gone, so that there are never
more processes than places. When none is free, the instance that has been unused longest is told to stop; when all are
in use the start waits a while, and fails with Busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

from mooring.errors import Busy

PATIENCE = 10.0
"""Seconds that a start waits for a place."""


class Occupant(Protocol):
    """An instance, as the room sees it."""

    @property
    def leaving(self) -> bool:
        """Its place will be free soon, whatever happens."""
        ...

    @property
    def idle_since(self) -> float | None:
        """Since when nobody has used it, in seconds of any one clock; None: it has to stay."""
        ...

    def stop(self, reason: str) -> None:
        """End it now."""
        ...


class Room:
    """``places``: how many; 0: no limit. ``occupants``: those who may hold a place."""

    def __init__(self, places: int, occupants: Callable[[], Iterable[Occupant]]) -> None:
        self._places = places
        self._occupants = occupants
        self._taken = 0
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def place(self, server: str) -> AsyncGenerator[None]:
        """Hold a place for ``server``. Raises Busy when there is none for ``PATIENCE`` seconds."""
        if not self._places:
            yield
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._admitted(server)
        except TimeoutError:
            raise Busy(
                f"{server} was not started: {self._places} servers run already and all are in use"
                " (gateway.max_instances sets the limit); try again later",
                server=server,
                phase="queue",
            ) from None
        except BaseException:
            self.changed()  # who waits may have counted on this one to leave
            raise
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
            self.changed()

    def changed(self) -> None:
        """A place is free, or an instance may give way that could not before."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _admitted(self, server: str) -> None:
        while self._taken >= self._places:
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(news)
            self._make_room(server)
            try:
                await news
            finally:
                self._waiting.remove(news)

    def _make_room(self, server: str) -> None:
        """One leaves for each that waits, the longest unused first."""
        occupants = list(self._occupants())
        if sum(occupant.leaving for occupant in occupants) >= len(self._waiting):
            return
        unused = [(since, occupant) for occupant in occupants if (since := occupant.idle_since) is not None]
        if unused:
            _, longest = min(unused, key=lambda pair: pair[0])
            longest.stop(f"made room for {server} (gateway.max_instances)")
