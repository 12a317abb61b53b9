"""Bytes from one connection to another, for ``launch.egress_proxy`` and ``launch.door``. It knows no protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

CHUNK = 64 * 1024
LAST_WORDS = 5.0
"""Seconds that one side gets to take, or to say, its last when the other is done."""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, moved: Callable[[], None]) -> None:
    """All that comes, and then its end. ``moved`` is called for each piece. Raises OSError."""
    while data := await reader.read(CHUNK):
        moved()
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def close(writer: asyncio.StreamWriter) -> None:
    """Send what is not sent yet, bounded, and let go; at once when the task is cancelled."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        writer.transport.abort()
        return
    writer.close()
    try:
        async with asyncio.timeout(LAST_WORDS):
            await writer.wait_closed()
    except OSError:
        pass
    finally:
        writer.transport.abort()
