"""The only way out for a server with a list in ``network``: an HTTP proxy that listens inside the server's own network
namespace and is served from here. It takes CONNECT and plain requests to the ``host:port`` of the list; names are
resolved here; all else gets 403 with the reason. A server that ignores the proxy has no network at all.

Used by launchers, around the life of one server::

    with network_of(pid) as network:
        async with egress(network, ("api.example:443",), denied):
            ...

It never reads what goes through a tunnel. Everything is bounded: the head, the time to send it, the connections at the
same time, the silence on them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager

from mooring.config.peers import is_address, is_here, parse_peer, show_peer
from mooring.launch.netns import Netns
from mooring.launch.proxy_request import BadRequest, Request, parse
from mooring.launch.streams import CHUNK, LAST_WORDS, Stream, close, copy
from mooring.tasks import Tasks

PORT = 3128
"""Where it listens inside: the usual port of proxies."""
HEAD = 16 * 1024
"""Bytes of a request's head."""
HEAD_TIME = 10.0
"""Seconds in which a whole head has to come."""
CONNECT = 10.0
"""Seconds to resolve a name and connect."""
IDLE = 600.0
"""Seconds without a byte in either direction."""
CONNECTIONS = 64
"""At the same time, of one server."""
TOLD = 100
"""Different peers of one server whose refusal is told."""

Denied = Callable[[str, str], None]
"""Told once for each peer (``host:port``) that was refused, with the reason."""


def proxy_environment(allowed: Iterable[str], port: int = PORT) -> dict[str, str]:
    """The environment variables by which programs inside find the proxy. A loopback address is the server's own, unless
    the list has it: then it is that of this machine."""
    meant = {parse_peer(peer)[0] for peer in allowed}
    own = ",".join(host for host in ("localhost", "127.0.0.1", "::1") if host not in meant)
    proxy = f"http://127.0.0.1:{port}"
    upper = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": own}
    return {**upper, **{name.lower(): value for name, value in upper.items()}, "NODE_USE_ENV_PROXY": "1"}


def proxy_port(taken: int | None) -> int:
    """The port of the proxy beside a server that listens on ``taken``."""
    return PORT + 1 if taken == PORT else PORT


@asynccontextmanager
async def egress(network: Netns, allowed: Iterable[str], denied: Denied, port: int = PORT) -> AsyncGenerator[None]:
    """Serve the proxy on 127.0.0.1:``port`` inside ``network``; leaving the block closes every connection. ``allowed``:
    ``host:port`` as in the configuration.

    Raises StartFailed when nothing can be opened inside, ValueError for an entry that is none.
    """
    proxy = EgressProxy(frozenset(map(parse_peer, allowed)), denied)
    listening = await network.listen(port)
    with listening:
        async with Tasks() as tasks, serving(listening, proxy, tasks):
            yield


@asynccontextmanager
async def serving(listening: socket.socket, proxy: EgressProxy, tasks: Tasks) -> AsyncGenerator[None]:
    """Accept on ``listening`` for ``proxy`` while the block lasts; the connections live in ``tasks``."""

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if server.is_serving():
            served = tasks.create_task(proxy.serve(reader, writer))
            served.add_done_callback(lambda _: writer.transport.abort())  # it may end before it began
        else:  # accepted at the last moment
            writer.transport.abort()

    server = await asyncio.start_server(connected, sock=listening, limit=HEAD, start_serving=False)
    try:
        await server.start_serving()  # within: who is cancelled in it must not leave it listening
        yield
    finally:
        server.close()


class Refusal(Exception):
    """What a client is told instead of being connected: an HTTP status and a sentence."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        body = f"Mooring: {text}\n".encode("utf-8", "replace")
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.reply = head.encode() + body


class EgressProxy:
    """``peers``: the only (host, port) it connects to, as ``config.peers.parse_peer`` gives them."""

    def __init__(self, peers: frozenset[tuple[str, int]], denied: Denied) -> None:
        self._peers = peers
        self._denied = denied
        self._told: set[str] = set()
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, to its end."""
        self._open += 1
        try:
            if self._open > CONNECTIONS:
                raise Refusal("503 Service Unavailable", f"more than {CONNECTIONS} connections at the same time")
            request = await _request(reader)
            far = await self._connected(request)
            try:
                await _exchange(request, (reader, writer), far)
            finally:
                await close(far[1])
        except Refusal as refusal:
            writer.write(refusal.reply)
            if self._open <= CONNECTIONS:  # else there may be very many: none of them is waited for
                await _take_leave(reader, writer)
        except (OSError, asyncio.IncompleteReadError):  # somebody hung up, or was silent for too long
            pass
        finally:
            self._open -= 1
            await close(writer)

    async def _connected(self, request: Request) -> Stream:
        """The first address of the peer that answers. Raises Refusal."""
        if (request.host, request.port) not in self._peers:
            raise self._forbidden(request, f'it is not in "network" of this server; add "{request.peer}" to allow it')
        failure = "it has no address"
        try:
            async with asyncio.timeout(CONNECT):
                for address in await self._addresses(request):
                    try:
                        return await asyncio.open_connection(address, request.port, limit=CHUNK)
                    except OSError as error:
                        failure = error.strerror or str(error)
        except TimeoutError:
            failure = f"no answer within {CONNECT:g} s"
        except OSError as error:
            failure = error.strerror or str(error)
        raise Refusal("502 Bad Gateway", f"{request.peer} cannot be reached: {failure}")

    async def _addresses(self, request: Request) -> list[str]:
        """Whoever owns a name says where it leads; to this machine only what the list says in so many words does.
        Raises Refusal and OSError."""
        if is_address(request.host):
            return [request.host]
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(request.host, request.port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        if request.host == "localhost":
            return addresses
        outside = [address for address in addresses if not is_here(address)]
        if addresses and not outside:
            meant = show_peer(addresses[0], request.port)
            raise self._forbidden(request, f'the name leads to this machine; if that is meant, write "{meant}"')
        return outside

    def _forbidden(self, request: Request, reason: str) -> Refusal:
        """The refusal to raise; told to the outside the first time."""
        if request.peer not in self._told and len(self._told) < TOLD:
            self._told.add(request.peer)
            self._denied(request.peer, reason)
        return Refusal("403 Forbidden", f"{request.peer} is refused: {reason}")


async def _request(reader: asyncio.StreamReader) -> Request:
    """Raises Refusal, IncompleteReadError and OSError."""
    try:
        async with asyncio.timeout(HEAD_TIME):
            return parse(await reader.readuntil(b"\r\n\r\n"))
    except BadRequest as error:
        raise Refusal("400 Bad Request", str(error)) from None
    except asyncio.LimitOverrunError:
        raise Refusal("431 Request Header Fields Too Large", f"the head has more than {HEAD >> 10} KiB") from None
    except TimeoutError:
        raise Refusal("408 Request Timeout", f"no whole request within {HEAD_TIME:g} s") from None


async def _exchange(request: Request, near: Stream, far: Stream) -> None:
    """Copy both ways until both have ended, one breaks, or nothing moves for ``IDLE``. Raises TimeoutError."""
    if request.head is None:
        near[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        far[1].write(request.head)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(IDLE) as limit:
        patience = IDLE

        def moved() -> None:
            limit.reschedule(loop.time() + patience)

        async def back() -> None:
            nonlocal patience
            await copy(far[0], near[1], moved)
            patience = LAST_WORDS
            moved()

        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(copy(near[0], far[1], moved))
                both.create_task(back())
        except* OSError:
            pass


async def _take_leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what the client still sends, bounded: else the system resets the connection, and the answer is lost."""
    try:
        async with asyncio.timeout(LAST_WORDS):
            writer.write_eof()
            while await reader.read(CHUNK):
                pass
    except OSError:
        return
