"""What the pool is given to bring an instance to life, and what passes between the two. Implemented by ``serve.app``
(launcher, then transport); the pool knows neither launchers nor transports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from mooring.config.plan import Variant
from mooring.config.plan_servers import Timeouts
from mooring.instances import rules
from mooring.instances.health import Complete
from mooring.instances.room import Room
from mooring.launch.base import Launched
from mooring.nouns import Era, InstanceKey
from mooring.observe.events import Events
from mooring.wire.connection import Connection, Listener

QUEUE = "queue"
"""The phase before the first step: others are starting, or there is no room yet."""


class Demand(msgspec.Struct, frozen=True):
    """What is asked of an instance that is not for everybody: by a caller session that has it to itself, by the legacy
    clients that share it, by a first look."""

    capabilities: bytes
    """What is declared to the server: client capabilities, raw JSON."""
    era: Era | None
    """In which era to meet it, if it speaks both; None: as everybody does."""
    listener: Listener


class Running(msgspec.Struct, frozen=True):
    """A server that answers MCP."""

    connection: Connection
    launched: Launched


class Progress(Protocol):
    """Who is told how far a start is."""

    def phase(self, name: str) -> None:
        """It is at this step now."""
        ...

    def spawned(self, launched: Launched) -> None:
        """There is something that runs."""
        ...


class Birth:
    """One start under way: how far it is, and its deadline. The opener reports here.

    Phases with a limit of their own (look-up, pull, build, resolve) do not count against ``timeouts.start``.
    """

    def __init__(self, demand: Demand | None, timeouts: Timeouts, limit: asyncio.Timeout) -> None:
        self.demand = demand
        self.at = QUEUE
        """The phase it is in."""
        self.launched: Launched | None = None
        self._timeouts = timeouts
        self._limit: asyncio.Timeout | None = limit
        self._loop = asyncio.get_running_loop()
        self._left = timeouts.start
        self._since = 0.0

    def phase(self, name: str) -> None:
        """The start is at this step now, such as "pull", "start", "initialize"."""
        if self._limit is None or self._limit.expired():
            return
        now = self._loop.time()
        if self.at != QUEUE and rules.own_limit(self.at, self._timeouts) is None:
            self._left -= now - self._since
        self.at, self._since = name, now
        own = rules.own_limit(name, self._timeouts)
        self._limit.reschedule(now + (max(0.0, self._left) if own is None else own))

    def spawned(self, launched: Launched) -> None:
        """There is a process: ``ps`` shows its pid, and a failing start its last stderr lines."""
        self.launched = launched

    def over(self) -> None:
        """The start is over: it has no deadline any more."""
        self._limit = None

    def call_off(self) -> None:
        """Interrupt the start; its block is left with TimeoutError."""
        limit, self._limit = self._limit, None
        if limit is not None and not limit.expired():
            limit.reschedule(self._loop.time())

    def tail(self) -> str:
        """The last lines of stderr, as far as there is a process."""
        return self.launched.stderr.text() if self.launched else ""

    def limit(self) -> float:
        """The limit that the current phase is under."""
        own = rules.own_limit(self.at, self._timeouts)
        return self._timeouts.start if own is None else own


Opener = Callable[[Variant, InstanceKey, Birth], AbstractAsyncContextManager[Running]]
"""Starts the server and opens its conversation; leaving the block means the server is gone. Raises any MooringError;
whatever was begun is undone then. Each step of its ending is bounded."""


class Means(msgspec.Struct, frozen=True):
    """What a pool gives to each of its instances."""

    open: Opener
    listed: Callable[[Variant, InstanceKey, Connection, Demand | None], Awaitable[None]]
    complete: Complete
    events: Events
    clock: Callable[[], float]
    permits: asyncio.Semaphore
    """Limits starts under way."""
    room: Room
    """Limits what runs."""
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    """Runs an owner task; the pool awaits it."""
    forget: Callable[[InstanceKey], None]
    """Drops an instance that is gone for good."""
