"""HTTP towards one server: pooled connections, one exchange at a time, everything bounded but the server's thinking.

Used by ``wire.http_upstream`` and ``wire.sse_upstream``, and imported only when a server with a URL is opened. It knows
HTTP and event streams, no MCP. What goes wrong comes out as Mooring's errors; ``details["written"]`` of a Crashed tells
whether the server may have seen the request.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Self, cast
from urllib.parse import urlsplit, urlunsplit

import httpx2

from mooring import __version__
from mooring.errors import Crashed, UpstreamProtocol
from mooring.wire.sse import LIMIT, Event, Events, TooLong

if TYPE_CHECKING:
    from mooring.wire.bearer import Bearer

CONNECT = 10.0
"""Seconds to connect, TLS included."""
WRITE = 60.0
"""Seconds that a server may stop reading in the middle of a request."""
KEEP_ALIVE = 4.0
"""Seconds that an idle connection is kept: servers commonly close theirs after 5, and a request that meets a closing
connection must not be repeated."""
IDLE_CONNECTIONS = 20
REDIRECTS = 5
BODY = LIMIT
"""Bytes of one answer."""

for library in ("httpx2", "httpcore2"):
    logging.getLogger(library).setLevel(logging.WARNING)  # below that they write whole URLs, queries included

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)


@cache
def tls_context() -> ssl.SSLContext:
    """The one TLS context of this process: reading the certificates takes tens of milliseconds."""
    return httpx2.create_ssl_context()


def shown(url: str) -> str:
    """A URL as it may be shown: user, password and query are often secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class Reply:
    """The head of a response, and its body while the exchange is open."""

    def __init__(self, name: str, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        """Media type, lower case."""
        self.location = shown(str(response.next_request.url)) if response.next_request else ""
        """Where a redirect that was not followed leads to."""
        self.name = name
        self._response = response

    @property
    def ok(self) -> bool:
        """The server took the request."""
        return 200 <= self.status < 300

    @property
    def streams(self) -> bool:
        """The body is an event stream."""
        return self.ok and self.media == "text/event-stream"

    async def body(self) -> bytes:
        """The whole body. Raises Crashed when it breaks off, UpstreamProtocol when it is too long."""
        parts: list[bytes] = []
        size = 0
        with translated(self.name):
            async for chunk in self._response.aiter_bytes():
                size += len(chunk)
                if size > BODY:
                    raise UpstreamProtocol(f"{self.name} sent more than {BODY >> 20} MiB", server=self.name)
                parts.append(chunk)
        return b"".join(parts)

    async def events(self, events: Events) -> AsyncIterator[Event]:
        """The events of the stream, as they come; ``events`` remembers where it was. Raises like ``body``."""
        events.reopened()
        with translated(self.name):
            async for chunk in self._response.aiter_bytes():
                try:
                    found = events.feed(chunk)
                except TooLong as error:
                    raise UpstreamProtocol(f"{self.name}: {error}", server=self.name) from None
                for event in found:
                    yield event


class HttpClient:
    """An async context manager. ``headers`` go with every request, and the token of ``auth`` if there is one.
    ``socket``: see ``launch.base.Url``."""

    def __init__(
        self,
        name: str,
        url: str,
        headers: Mapping[str, str],
        socket: str | None = None,
        auth: Bearer | None = None,
    ) -> None:
        self.url = url
        self.name = name
        self._auth = auth
        local = urlsplit(url).hostname in _LOOPBACK  # no proxy of the environment can reach what is meant
        limits = httpx2.Limits(
            max_connections=None, max_keepalive_connections=IDLE_CONNECTIONS, keepalive_expiry=KEEP_ALIVE
        )
        through = httpx2.AsyncHTTPTransport(verify=tls_context(), limits=limits, uds=socket) if socket else None
        self._client = httpx2.AsyncClient(
            headers={"User-Agent": f"mooring/{__version__}", **headers},
            timeout=httpx2.Timeout(CONNECT, read=None, write=WRITE, pool=None),
            limits=limits,
            transport=through,
            verify=tls_context(),
            trust_env=not (local or socket),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    @asynccontextmanager
    async def exchange(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None, url: str = ""
    ) -> AsyncGenerator[Reply]:
        """Send a request; the block has the reply, and leaving it before the body's end closes the connection.
        Redirects are followed only to the same origin. Raises Crashed, and Unavailable when a login is needed."""
        send = self._sent if self._auth is None else partial(self._authorized, self._auth)
        response = await send(method, url or self.url, headers, content)
        try:
            yield Reply(self.name, response)
        finally:
            await response.aclose()

    async def _authorized(
        self, auth: Bearer, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        """The response to the request with its token; one that was refused was not carried out, and is sent once more
        if there is a newer token."""
        last = False
        while True:
            token = await auth.token()
            authorized = {**headers, "Authorization": f"Bearer {token}"} if token else headers
            response = await self._sent(method, url, authorized, content)
            if response.status_code not in (401, 403):
                return response
            challenge = response.headers.get("www-authenticate", "")
            try:
                again = await auth.another(token, response.status_code, challenge, last=last)
            except BaseException:
                await response.aclose()
                raise
            if not again:
                return response
            await response.aclose()
            last = True

    async def _sent(self, method: str, url: str, headers: Mapping[str, str], content: bytes | None) -> httpx2.Response:
        with translated(self.name, shown(url)):
            request = self._client.build_request(method, url, headers=headers, content=content)
            for _ in range(REDIRECTS + 1):
                response = await self._client.send(request, stream=True)
                following = next_request(response)
                if following is None:
                    return response
                await response.aclose()
                request = following
        raise UpstreamProtocol(f"{self.name} redirects in circles", server=self.name)


def next_request(response: httpx2.Response) -> httpx2.Request | None:
    """The request that follows a redirect, if it may be followed: the same method at the same origin (or its upgrade
    to https), with no credentials in the new URL. All else would take headers and body to somebody else."""
    following, sent = response.next_request, response.request
    if following is None or following.method != sent.method:
        return None
    if following.url.userinfo and following.url.userinfo != sent.url.userinfo:
        return None
    return following if same_origin(str(sent.url), str(following.url)) else None


def same_origin(url: str, other: str) -> bool:
    """Whether scheme, host and port are equal, or ``other`` is the https side of the same host on default ports."""
    one, two = httpx2.URL(url), httpx2.URL(other)
    if (one.scheme, one.host, one.port) == (two.scheme, two.host, two.port):
        return True
    upgrade = one.host == two.host and one.port is None and two.port is None
    return upgrade and (one.scheme, two.scheme) == ("http", "https")


@contextmanager
def translated(name: str, place: str = "") -> Generator[None]:
    """Failures of the HTTP library as Crashed."""
    try:
        yield
    except _NOT_SENT as error:
        why = cause(error)
        raise Crashed(f"{name} cannot be reached at {place}: {why}", server=name, written=False) from None
    except httpx2.InvalidURL as error:
        raise Crashed(f"{name}: {place} is not a URL: {error}", server=name, written=False) from None
    except (httpx2.TransportError, httpx2.DecodingError, httpx2.StreamError) as error:
        raise Crashed(f"{name} broke the connection off: {cause(error)}", server=name, written=True) from None


def cause(error: BaseException) -> str:
    """Why a connection failed, in the system's words; libraries wrap them in several of their own."""
    if isinstance(error, httpx2.ConnectTimeout):
        return f"no connection within {CONNECT:g} s"
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.strerror:
            return at.strerror
        group = cast("BaseExceptionGroup[BaseException]", at) if isinstance(at, BaseExceptionGroup) else None
        at = group.exceptions[0] if group else at.__cause__ or at.__context__
    return str(error) or type(error).__name__
