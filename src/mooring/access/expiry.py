"""Ends keys at the very moment at which they expire, with their sessions and streams.

A look-up refuses an expired key by itself; this is for what was opened before. ``serve.daemon`` keeps one task of it.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from mooring.access.keys import Keys

LOOK = 60.0
"""Seconds after which the clock is asked anew at the latest: it may be set, and machines sleep."""


async def expiring(keys: Keys) -> NoReturn:
    """Runs until cancelled."""
    while True:
        left = keys.expire()
        keys.changed.clear()
        try:
            async with asyncio.timeout(None if left is None else min(left, LOOK)):
                await keys.changed.wait()
        except TimeoutError:
            continue
