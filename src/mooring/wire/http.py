"""The HTTP/1.1 server: accepts connections and hands requests to one handler.

Used by ``serve.front`` with ``wire.http_front.McpFront`` as the handler. Knows nothing of MCP. Everything it needs is a
constructor argument; leaving the context manager ends it within a bound.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial

from mooring.wire.http_connection import Connection
from mooring.wire.http_messages import JSON, Limits, Reply, Request, Stream, problem

__all__ = ["DEFAULTS", "JSON", "Handler", "HttpServer", "Limits", "Reply", "Request", "Stream", "problem"]

Handler = Callable[[Request], Awaitable[Reply | Stream]]
"""Answers a request; a handler that streams calls ``request.begin`` and returns the stream when it is complete."""
Admit = Callable[[Request], Reply | asyncio.Future[None] | None]
"""Looks at a head whose body has not arrived yet: a Reply refuses the request unread; with a future the body stays
unread until it is done, and is asked about again."""
DEFAULTS = Limits()
BACKLOG = 1024
"""Connections that may wait to be accepted."""


class HttpServer:
    """Serves any number of addresses between ``async with`` and its end."""

    def __init__(
        self,
        handler: Handler,
        *,
        admit: Admit | None = None,
        limits: Limits = DEFAULTS,
        grace: float = 1.0,
    ) -> None:
        """``grace``: seconds that running requests have at the end before they are cancelled."""
        self.handler = handler
        self.admit = admit
        self.limits = limits
        self.grace = grace
        self.closing = False
        self.surviving: set[asyncio.Task[None]] = set()
        """Running requests whose client is gone; the others are their connections'."""
        self.connections: set[Connection] = set()
        self._peers: dict[str, int] = {}
        self._listeners: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        shortest = min(limits.header_timeout, limits.body_timeout, limits.write_timeout, limits.idle_timeout)
        self._interval = min(1.0, shortest / 2)

    async def __aenter__(self) -> HttpServer:
        self.loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections at ``host`` and ``port`` (0: any free one); returns the address. Raises OSError."""
        bound = _bound(host, port)
        create = partial(self.loop.create_server, lambda: Connection(self), backlog=BACKLOG, start_serving=False)
        listener = await (create(host, port) if bound is None else create(sock=bound))
        self._listeners.append(listener)
        await listener.start_serving()  # once it is ours: who is cancelled in it must not leave it listening
        if not all(listener.sockets):  # taken since it was bound: uvloop closes it, and says nothing
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        name = listener.sockets[0].getsockname()
        return name[0], name[1]

    async def close(self) -> None:
        """Stop accepting, let running requests finish within the grace, cancel the rest, cut every connection."""
        self.closing = True
        for listener in self._listeners:
            listener.close()
        for connection in tuple(self.connections):
            connection.shut()
        running = self.surviving | {each.task for each in self.connections if each.task is not None}
        if running:
            _, late = await asyncio.wait(running, timeout=self.grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=self.grace)
        for connection in tuple(self.connections):
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def joined(self, connection: Connection) -> bool:
        """Count a new connection; False when there are too many, of all or of its peer."""
        self.connections.add(connection)
        count = self._peers[connection.peer] = self._peers.get(connection.peer, 0) + 1
        if self._timer is None and not self.closing:
            self._timer = self.loop.call_later(self._interval, self._tick)
        return count <= self.limits.connections_per_peer and len(self.connections) <= self.limits.connections

    def left(self, connection: Connection) -> None:
        """Forget a connection that is lost."""
        self.connections.discard(connection)
        count = self._peers.get(connection.peer, 0) - 1
        if count > 0:
            self._peers[connection.peer] = count
        else:
            self._peers.pop(connection.peer, None)

    def _tick(self) -> None:
        """One timer for all connections, armed while there are any: timers of their own would cost each request."""
        now = self.loop.time()
        for connection in tuple(self.connections):
            connection.tick(now)
        self._timer = self.loop.call_later(self._interval, self._tick) if self.connections else None


def _bound(host: str, port: int) -> socket.socket | None:
    """A socket for an address in numbers; None for a name, which the event loop looks up. For numbers the loop would
    look them up as well, and load the codec for international names, which takes longer than listening."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
    except OSError:
        return None
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound
