"""The event loop takes over the pipes of a process. Used by whoever talks with one over stdio.

uvloop closes a pipe by its number and then closes the file object that it was given, too. In between another thread may
open something under that number, which is closed then under its hands; what it writes next, an audit record say, goes
to whoever gets the number after it. So uvloop is given file objects that close nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import IO, Any

from mooring.launch.base import Pipes


async def taken_over(
    pipes: Pipes,
    reading: Callable[[], asyncio.Protocol],
    writing: Callable[[], asyncio.BaseProtocol],
) -> tuple[asyncio.ReadTransport, asyncio.WriteTransport]:
    """The transports of both pipes, with these protocols. From the call on the descriptors are not the caller's any
    more: they are closed with the transports, or at once when it fails or is cancelled. What was left over is the
    caller's to deliver."""
    loop = asyncio.get_running_loop()
    closes = isinstance(loop, asyncio.BaseEventLoop)  # uvloop's is none, nor is what others derive from it
    try:
        writer, _ = await loop.connect_write_pipe(writing, _file(pipes.writer, "wb", closes))
    except BaseException:
        os.close(pipes.reader)
        raise
    try:
        reader, _ = await loop.connect_read_pipe(reading, _file(pipes.reader, "rb", closes))
    except BaseException:
        writer.abort()
        raise
    return reader, writer


def _file(descriptor: int, mode: str, closes: bool) -> IO[Any]:
    return os.fdopen(descriptor, mode, 0, closefd=closes)
