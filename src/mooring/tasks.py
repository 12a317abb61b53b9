"""A home for background tasks: whoever starts one hands it to a ``Tasks``, which ends it.

Unlike ``asyncio.TaskGroup``, one failed task does not end its neighbours (a broken server never breaks another); it is
logged. Leaving the block cancels what still runs and waits for it, bounded. ``finish`` is for work that must not be
left half done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any, Self

ENDING = 10.0
"""Seconds that cancelled tasks get to clean up."""
_log = logging.getLogger("mooring")


class Tasks:
    """An async context manager that owns tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ENDING)

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` until it ends or the block does."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("background task %s failed", task.get_coro(), exc_info=error)


async def finish(work: Awaitable[None]) -> None:
    """Await ``work`` to its end even when the caller is cancelled meanwhile; the cancellation is raised afterwards.

    ``work`` must be bounded by itself.
    """
    task = asyncio.ensure_future(work)
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
