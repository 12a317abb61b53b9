"""Requests under way, so that a gateway which stops can answer them instead of hanging up. Used by ``relay.relay``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from mooring.errors import Unavailable
from mooring.relay import refusals
from mooring.wire.jsonrpc import Answer
from mooring.wire.session import Request

GRACE = 1.0
"""Seconds that requests have to be answered by their servers once the gateway stops."""
ANSWERING = 1.0
"""Seconds that the rest has to be answered by Mooring."""
_ENDLESS = frozenset(("subscriptions/listen",))


class Ending:
    """``run`` carries each request; ``stop`` ends them all with an answer. Each request has a task to itself."""

    def __init__(self) -> None:
        self._stopping = False
        self._running: dict[asyncio.Task[object], Request] = {}
        self._ended: set[asyncio.Task[object]] = set()

    async def run(self, request: Request, serve: Callable[[Request], Awaitable[Answer]]) -> Answer:
        """What ``serve`` answers, or that Mooring is stopping."""
        if self._stopping:
            return _refusal(request, "Mooring is stopping and takes no more requests.")
        task = asyncio.current_task()
        assert task is not None
        self._running[task] = request
        try:
            return await serve(request)
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            return _refusal(request, "Mooring is stopping. The request was cancelled; it may have had an effect.")
        finally:
            del self._running[task]
            self._ended.discard(task)

    async def stop(self) -> None:
        """Take no more requests, and have every one under way answered; bounded."""
        self._stopping = True
        self._end([task for task, request in self._running.items() if request.method in _ENDLESS])
        if self._running:
            _, late = await asyncio.wait(tuple(self._running), timeout=GRACE)
            self._end(late & self._running.keys())
            if late:
                await asyncio.wait(late, timeout=ANSWERING)

    def _end(self, tasks: Iterable[asyncio.Task[object]]) -> None:
        for task in tasks:
            self._ended.add(task)
            task.cancel()


def _refusal(request: Request, text: str) -> Answer:
    error = Unavailable(text)
    return refusals.tool_failure(error, request.era) if request.method == "tools/call" else refusals.failure(error)
