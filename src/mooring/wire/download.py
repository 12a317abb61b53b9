"""GET of whole documents: what the catalog's sources publish. Imported only when one is read.

The URL that a person configured is gone to as it stands, proxies of the environment included. Redirects to somewhere
else are looked at by ``wire.egress`` first: whoever answers there does not get to send Mooring into a private network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Self
from urllib.parse import urlsplit

import httpx2

from mooring import __version__
from mooring.errors import TimedOut, UpstreamProtocol
from mooring.wire.egress import Reach
from mooring.wire.egress_transport import GuardedTransport, trust
from mooring.wire.http_client import CONNECT, REDIRECTS, same_origin, shown, tls_context, translated

LIMIT = 300.0
"""Seconds for one document."""
SILENCE = 30.0
"""Seconds without a byte."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Document = tuple[int, Mapping[str, str], bytes]
"""Status, headers with names in lower case, body."""


class Downloads:
    """An async context manager; connections to the configured place are kept while it lasts."""

    def __init__(self, url: str) -> None:
        """``url``: what is configured; whatever has its origin is as trusted as it is."""
        self._url = url
        local = urlsplit(url).hostname in _LOOPBACK
        self._timeout = httpx2.Timeout(SILENCE, connect=CONNECT)
        self._headers = {"User-Agent": f"mooring/{__version__}"}
        self._own = httpx2.AsyncClient(
            headers=self._headers, timeout=self._timeout, verify=tls_context(), trust_env=not local
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._own.aclose()

    async def get(self, url: str, headers: Mapping[str, str], most: int) -> Document:
        """The document at ``url``, of at most ``most`` bytes. Raises MooringError when there is none."""
        name = urlsplit(url).hostname or url
        try:
            async with asyncio.timeout(LIMIT):
                with translated(name, shown(url)):
                    return await self._followed(url, headers, most)
        except TimeoutError:
            raise TimedOut(f"{shown(url)} did not arrive within {LIMIT:g} s.") from None

    async def _followed(self, url: str, headers: Mapping[str, str], most: int) -> Document:
        request = self._own.build_request("GET", url, headers=headers)
        for _ in range(REDIRECTS + 1):
            if same_origin(self._url, str(request.url)):
                answer, following = await _received(self._own, request, most)
            else:
                guarded = GuardedTransport(await self._trusted(request))
                async with httpx2.AsyncClient(transport=guarded, timeout=self._timeout) as client:
                    answer, following = await _received(client, request, most)
            if following is None:
                return answer
            request = following
        raise UpstreamProtocol(f"{shown(url)} redirects in circles.")

    async def _trusted(self, request: httpx2.Request) -> Reach:
        """What the configured place may redirect to. Raises httpx2.ConnectError when it has no address here, such as
        behind a proxy that looks names up."""
        try:
            return await trust(self._url)
        except OSError as error:
            raise httpx2.ConnectError(str(error), request=request) from error


async def _received(
    client: httpx2.AsyncClient, request: httpx2.Request, most: int
) -> tuple[Document, httpx2.Request | None]:
    response = await client.send(request, stream=True)
    try:
        if response.next_request is not None:
            return (response.status_code, {}, b""), response.next_request
        parts: list[bytes] = []
        size = 0
        async for part in response.aiter_bytes():
            size += len(part)
            if size > most:
                raise UpstreamProtocol(f"{shown(str(request.url))} is larger than {most >> 20} MiB.")
            parts.append(part)
        return (response.status_code, dict(response.headers), b"".join(parts)), None
    finally:
        await response.aclose()
