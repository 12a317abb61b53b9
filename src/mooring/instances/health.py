"""Whether a server still answers, asked after a call that timed out. Used by ``instances.life``; holds nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mooring.errors import MooringError
from mooring.nouns import Facts
from mooring.wire.connection import Connection
from mooring.wire.jsonrpc import EMPTY

ALIVE_LIMIT = 5.0
"""Seconds that a server has to answer a ping."""

Complete = Callable[[Facts, bytes], bytes]
"""Makes the raw params of Mooring's own request complete for a server's era."""


def as_is(facts: Facts, params: bytes) -> bytes:
    """Complete for the legacy era."""
    return params


async def alive(connection: Connection, complete: Complete = as_is, limit: float = ALIVE_LIMIT) -> bool:
    """Whether anything comes back within ``limit`` seconds: an error is a sign of life too. Legacy servers are asked
    ``ping``; modern ones, which have none, ``server/discover``."""
    method = "ping" if connection.facts.era == "legacy" else "server/discover"
    try:
        async with asyncio.timeout(limit):
            await connection.request(method, complete(connection.facts, EMPTY))
    except (TimeoutError, MooringError):
        return False
    return True
