"""Waiting for a condition in tests, always with a limit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any


async def wait_for(predicate: Callable[[], Any | Awaitable[Any]], timeout: float = 5.0, interval: float = 0.005) -> Any:
    """Look until ``predicate()`` (plain or async) is true and return what it gave; for conditions that announce
    themselves nowhere, such as a process that ends. ``timeout`` and ``interval`` in seconds. Raises TimeoutError with
    the last value seen."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        value = predicate()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if loop.time() > deadline:
            name = getattr(predicate, "__qualname__", repr(predicate))
            raise TimeoutError(f"{name} was still {value!r} after {timeout} s")
        await asyncio.sleep(interval)
