"""HTTP to URLs that somebody else named: every request, and so every redirect hop, is looked at by ``wire.egress``
first and then goes to exactly the address that was looked at.

For OAuth (``wire.oauth``, ``wire.bearer``), through ``guarded`` and ``ask``. It knows no proxies: a proxy would resolve
names by itself, and what it may reach is for its owner to say.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2

from mooring import __version__
from mooring.wire.egress import Reach, check_addresses, check_url, standing
from mooring.wire.http_client import tls_context

TIMEOUT = 20.0
"""Seconds for one answer, connecting included."""
LARGEST = 1 << 20
"""Bytes of one answer: metadata and tokens are small."""

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host. Raises OSError."""


async def resolve(host: str, port: int) -> list[str]:
    """By the system's resolver, in its order."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=1)  # socket.SOCK_STREAM
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def trust(url: str, find: Resolve = resolve) -> Reach:
    """What a server configured at ``url`` may send Mooring to. Raises OSError."""
    parts = httpx2.URL(url)
    try:
        async with asyncio.timeout(TIMEOUT):
            addresses = await find(parts.host, parts.port or (443 if parts.scheme == "https" else 80))
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, f"no address of {parts.host} within {TIMEOUT:g} s") from None
    return standing(parts.host, addresses)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """``trusted``: what ``trust`` said about the configured server."""

    def __init__(self, trusted: Reach, find: Resolve = resolve) -> None:
        self._trusted: Reach = trusted
        self._find = find
        # A connection is known by its address here, so one that was made for another name must never be used again.
        single = httpx2.Limits(max_keepalive_connections=0)
        self._inner = httpx2.AsyncHTTPTransport(verify=tls_context(), trust_env=False, limits=single)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises Forbidden, and what the HTTP library raises."""
        host = check_url(str(request.url), self._trusted)
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        try:
            addresses = await self._find(host, port)
        except OSError as error:
            raise httpx2.ConnectError(f"{host}: {error}", request=request) from error
        pinned = check_addresses(host, addresses, self._trusted)[0]
        return await self._inner.handle_async_request(
            httpx2.Request(
                request.method,
                request.url.copy_with(host=pinned),
                headers=request.headers,  # Host is in them, as the URL had it
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


@asynccontextmanager
async def guarded(url: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client for what the server configured at ``url`` names. Follows no redirects by itself. Raises OSError when
    ``url`` has no address."""
    transport = GuardedTransport(await trust(url))
    headers = {"User-Agent": f"mooring/{__version__}"}
    async with httpx2.AsyncClient(transport=transport, trust_env=False, timeout=TIMEOUT, headers=headers) as client:
        yield client


async def ask(client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    """The response with all of its body, bounded in time and size. Raises Forbidden and httpx2.HTTPError."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return await _read(await client.send(request, stream=True))
    except TimeoutError:
        raise httpx2.ReadTimeout(f"no answer within {TIMEOUT:g} s", request=request) from None


async def _read(response: httpx2.Response) -> httpx2.Response:
    body = b""
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > LARGEST:
                raise httpx2.ReadError(f"more than {LARGEST >> 10} KiB", request=response.request)
    finally:
        await response.aclose()
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_BODY]
    read = httpx2.Response(response.status_code, headers=headers, content=body, request=response.request)
    read.next_request = response.next_request
    return read


_OF_BODY = ("content-encoding", "content-length", "transfer-encoding")
