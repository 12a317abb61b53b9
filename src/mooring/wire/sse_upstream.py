"""A conversation with a server of the old HTTP+SSE transport: one event stream from it, one POST for each message.

Opened by ``wire.remote_upstream``. All messages share the stream as they do on stdio, so the conversation itself is
that of ``wire.stdio_upstream``; this is its channel. Messages are posted in the order they were sent, each when the one
before was taken; but some servers take a request only when they have answered it, and may ask something before, so that
nothing waits long. A message that the server does not take ends the conversation.

Source: MCP 2024-11-05 "HTTP with SSE".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urljoin

import httpx2

from mooring.errors import Crashed, MooringError, UpstreamProtocol
from mooring.wire.connection import Listener
from mooring.wire.http_client import HttpClient, Reply, same_origin
from mooring.wire.sse import Events
from mooring.wire.stdio_upstream import StdioConnection
from mooring.wire.upstream_refusal import refusal

QUEUE = 8 * 1024 * 1024
"""Bytes that may wait to be posted; beyond it nothing more is taken."""
ORDER = 0.5
"""Seconds that a message waits at most for the one before it to be taken."""
CLOSING = 1.0
"""Seconds for the two sides to unwind."""


class SseChannel:
    """Carries the frames. ``line`` is called with each message of the server and must not raise, ``ended`` once, with
    the reason, when the server is gone."""

    dropped = 0

    def __init__(self, http: HttpClient, line: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self.open = False
        self._http = http
        self._line = line
        self._ended = ended
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._size = 0
        self._name = http.name

    @property
    def full(self) -> bool:
        """Whether the server has not taken anything for so long that nothing more is queued."""
        return self._size > QUEUE

    def send(self, frame: bytes) -> bool:
        """Queue one message; False when the stream is not open or too much waits."""
        if not self.open or self.full:
            return False
        self._size += len(frame)
        self._waiting.put_nowait(frame)
        return True

    def close(self) -> None:
        """Take nothing more; the tasks end with ``running``."""
        self.open = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The stream is open within the block. Raises Crashed, UpstreamProtocol and whatever its refusal says."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._read())]
        try:
            url = await self._endpoint
            tasks.append(loop.create_task(self._write(url)))
            self.open = True
            yield
        finally:
            self.open = False
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CLOSING)

    async def _read(self) -> None:
        try:
            async with self._http.exchange("GET", {"Accept": "text/event-stream"}) as reply:
                if not reply.streams:
                    raise refusal(self._name, "the opening of its stream", reply.status, reply.location)
                await self._events(reply)
            raise Crashed(f"{self._name} closed its stream", server=self._name, phase="call", written=True)
        except MooringError as error:
            self._over(error)

    async def _events(self, reply: Reply) -> None:
        async for event in reply.events(Events()):
            if event.kind == "message":
                self._line(event.data)
            elif event.kind == "endpoint" and not self._endpoint.done():
                self._endpoint.set_result(self._checked(event.data.decode("utf-8", "replace")))

    def _checked(self, endpoint: str) -> str:
        """Where to post to: never anywhere but at the server's own origin, for the headers go along."""
        try:
            url = urljoin(self._http.url, endpoint.strip())
            own = same_origin(self._http.url, url)
        except (ValueError, httpx2.InvalidURL):
            raise UpstreamProtocol(
                f"{self._name} wants its messages posted to what is no URL", server=self._name
            ) from None
        if not own:
            raise UpstreamProtocol(f"{self._name} wants its messages posted to another origin", server=self._name)
        return url

    async def _write(self, url: str) -> None:
        posting: set[asyncio.Task[None]] = set()
        try:
            while True:
                frame = await self._waiting.get()
                if not self.open:
                    return
                task = asyncio.get_running_loop().create_task(self._post(url, frame))
                posting.add(task)
                task.add_done_callback(posting.discard)
                await asyncio.wait((task,), timeout=ORDER)
        finally:
            for task in posting:
                task.cancel()
            if posting:
                await asyncio.wait(posting, timeout=CLOSING)

    async def _post(self, url: str, frame: bytes) -> None:
        try:
            async with self._http.exchange("POST", {"Content-Type": "application/json"}, frame, url) as reply:
                self._size -= len(frame)
                if not reply.ok:
                    raise refusal(self._name, "a message", reply.status, reply.location)
                await reply.body()
        except MooringError as error:
            self._over(error)

    def _over(self, error: MooringError) -> None:
        self.open = False
        if not self._endpoint.done():
            self._endpoint.set_exception(error)
        else:
            self._ended(str(error).removeprefix(f"{self._name} "))


@asynccontextmanager
async def opened(http: HttpClient, listener: Listener) -> AsyncGenerator[StdioConnection[SseChannel]]:
    """A conversation whose handshake is still to come, over a stream that is open. Raises Crashed, and what the server
    answered instead of a stream."""
    connection = StdioConnection(http.name, partial(SseChannel, http), listener)
    async with connection.channel.running():
        try:
            yield connection
        finally:
            await connection.close()
