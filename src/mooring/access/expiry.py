"""Ends keys and tokens at the very moment at which they expire, with their sessions and streams.

A look-up refuses what has expired by itself; this is for what was opened before. ``serve`` keeps a task of it for keys,
and one for identity tokens where there are any.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn, Protocol

LOOK = 60.0
"""Seconds after which the clock is asked anew at the latest: it may be set, and machines sleep."""


class Expiring(Protocol):
    """What ends by itself."""

    changed: asyncio.Event
    """Set whenever something may have come that ends earlier."""

    def expire(self) -> float | None:
        """End what has expired; the seconds until the next one does, None when none will."""
        ...


async def expiring(keys: Expiring) -> NoReturn:
    """Runs until cancelled."""
    while True:
        left = keys.expire()
        keys.changed.clear()
        try:
            async with asyncio.timeout(None if left is None else min(left, LOOK)):
                await keys.changed.wait()
        except TimeoutError:
            continue
