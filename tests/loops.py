"""Both event loops that Mooring runs on, and work that is cancelled in the middle of its beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

LOOPS = pytest.mark.parametrize(
    "loops", [pytest.param(uvloop.new_event_loop, id="uvloop"), pytest.param(asyncio.new_event_loop, id="asyncio")]
)
"""The daemon's own, and that of a program that Mooring is a library of."""


def run(work: Coroutine[Any, Any, None], loops: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Run ``work`` on a loop of its own, for a minute at most."""
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(asyncio.wait_for(work, 60))


async def cancelled_after(ticks: int, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """``work``, which was cancelled after so many turns of the loop, once it has ended and what it closed is closed."""
    task = asyncio.create_task(work)
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    for _ in range(3):
        await asyncio.sleep(0)
    return task
