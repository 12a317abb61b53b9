"""A door into a network namespace: a unix socket here, for this user only, that leads to a port of the loopback
interface inside. For HTTP servers that publish nothing; ``launch.base.Url.socket`` is the path.

Used by launchers. It copies bytes and knows no HTTP.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from mooring.errors import StartFailed
from mooring.launch.netns import Netns
from mooring.launch.streams import Stream, close, copy
from mooring.tasks import Tasks


@asynccontextmanager
async def door(network: Netns, port: int) -> AsyncGenerator[str]:
    """The path of a unix socket that leads to ``port`` inside. Leaving the block closes every connection.

    Raises StartFailed when this user may not enter.
    """
    (await network.socket()).close()  # says at once what would fail later
    folder = tempfile.mkdtemp(prefix="mooring-")
    path = os.path.join(folder, "s")
    try:
        async with Tasks() as tasks:

            def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                if not server.is_serving():  # accepted at the last moment
                    writer.transport.abort()
                    return
                carried = tasks.create_task(_carry(network, port, (reader, writer)))
                carried.add_done_callback(lambda _: writer.transport.abort())  # it may end before it began

            server = await asyncio.start_unix_server(came, path, start_serving=False)
            try:
                await server.start_serving()  # within: who is cancelled in it must not leave it listening
                yield path
            finally:
                server.close()
    finally:
        with suppress(OSError):
            os.unlink(path)
        os.rmdir(folder)


class _Closed(Exception):
    """One end is done. HTTP never closes one half: the other has nobody to talk to."""


async def _carry(network: Netns, port: int, near: Stream) -> None:
    """One connection. If nobody listens inside, it is closed without a word."""
    try:
        far = await asyncio.open_connection(sock=await network.connect(port))
    except (OSError, StartFailed):
        return
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_one_way(near, far))
            both.create_task(_one_way(far, near))
    except* (OSError, _Closed):
        pass
    finally:
        await close(far[1])
        await close(near[1])


async def _one_way(source: Stream, sink: Stream) -> None:
    await copy(source[0], sink[1], lambda: None)
    raise _Closed
