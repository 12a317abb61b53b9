"""Bytes to HTTP/1.1 requests, within limits. No I/O, no clock.

Used by ``wire.http_connection``, one reader a connection. The parser is httptools (llhttp, in its strict mode, which
refuses what two readers could understand differently); this adds the limits, the handling of repeated headers and of
targets, and reads on where a client offers another protocol.

Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import httptools

from mooring.wire.http_messages import Carrier, Limits, Reply, Request, problem

_MAY_REPEAT = frozenset(
    b"accept accept-encoding accept-language cache-control connection cookie forwarded te trailer upgrade via "
    b"x-forwarded-for x-forwarded-host x-forwarded-proto".split()
)
"""Headers that may come several times; any other with two values could be read differently by two readers."""
_LONGEST_KNOWN = 4 << 10
"""Bytes of a head worth keeping for a connection."""
_OF_UPGRADE = (b"upgrade", b"connection", b"http2-settings")


class BadRequest(Exception):
    """What was read cannot be served; ``reply`` says why. Nothing more can be read after it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.reply: Reply = problem(status, message)


class RequestReader:
    """Reads requests one after the other. The ``on_*`` methods are the parser's callbacks."""

    def __init__(self, carrier: Carrier, peer: str, limits: Limits, complete: Callable[[Request], None]) -> None:
        """``complete`` is called with each request when all of it has arrived."""
        self.request: Request | None = None
        """The request that has begun to arrive; its head is complete when ``in_body``."""
        self.in_body = False
        self.expects_continue = False
        self._carrier = carrier
        self._peer = peer
        self._limits = limits
        self._complete = complete
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: bytes | bytearray = b""
        self._received = 0
        self._upgrade = self._over = False
        self._completed: Request | None = None
        """The last request that the parser completed in this ``feed``."""
        self._known: tuple[bytes, str, bytes, dict[bytes, bytes]] = (b"", "", b"", {})
        self._known_head = b""
        self._known_size = -1

    def feed(self, data: bytes) -> None:
        """Read on. Raises BadRequest."""
        fresh = self.request is None
        if fresh and len(data) == self._known_size and data.startswith(self._known_head):
            self._repeat(data)
            return
        offered = rest = self._parse(data)
        while rest is not None:  # no recursion: a peer may send hundreds of offers at once
            rest = self._parse(rest)
        completed, self._completed = self._completed, None
        if self.request is not None:
            self._check_size()
        elif completed is not None and fresh and offered is None:
            self._remember(completed, data)

    def _parse(self, data: bytes | memoryview) -> memoryview | None:
        """Read on, up to an offer of another protocol; what is left to read then."""
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline_upgrade()
            return memoryview(data)[offer.args[0] :]
        except httptools.HttpParserError as error:
            if self._over:
                return None  # what follows a request with "Connection: close" is nobody's
            cause = error.__context__
            raise cause if isinstance(cause, BadRequest) else BadRequest(400, f"not HTTP/1.1: {error}") from None
        return None

    def _remember(self, request: Request, data: bytes) -> None:
        """Keep the head of a request that came alone and whole. Clients repeat it to the byte, body length included;
        a head that was parsed once needs no parser, which is a third of the cost of a small request."""
        end = len(data) - int(request.headers.get(b"content-length", 0))
        alone = data.find(b"\r\n\r\n") == end - 4 and data[0] > 32 and b"transfer-encoding" not in request.headers
        if alone and request.keep_alive and end <= _LONGEST_KNOWN:
            self._known = request.method, request.path, request.query, request.headers
            self._known_head, self._known_size = data[:end], len(data)

    def _repeat(self, data: bytes) -> None:
        """A request whose head is the known one, and whose body is here: the length is the same."""
        request = Request(self._carrier, self._peer)
        request.method, request.path, request.query, request.headers = self._known
        request.body = data[len(self._known_head) :]
        self._complete(request)

    def on_message_begin(self) -> None:
        self.request = Request(self._carrier, self._peer)
        self._headers = self.request.headers
        self._url = self._body = b""
        self.in_body = self.expects_continue = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        headers = self._headers
        if name not in headers:
            headers[name] = value.rstrip(b" \t")
        elif name in _MAY_REPEAT:
            headers[name] += b", " + value
        elif headers[name] != value.rstrip(b" \t"):
            raise BadRequest(400, f"the header {name.decode('latin-1')} came twice with different values")

    def on_headers_complete(self) -> None:
        request, parser, headers = cast(Request, self.request), self._parser, self._headers
        self._headers = {}  # for trailers, which must not pass for headers
        self.in_body = True
        request.method = parser.get_method()
        self._take_target(request)
        if self._received > self._limits.header_bytes:
            self._check_head(headers)
        if parser.should_upgrade():
            if request.method == b"CONNECT":
                raise BadRequest(400, "this is not a proxy")
            self._upgrade = True
            return
        if int(headers.get(b"content-length", 0)) > self._limits.body_bytes:
            raise BadRequest(413, f"the body is larger than {self._limits.body_bytes} bytes")
        if b"expect" in headers:
            if headers[b"expect"].lower() != b"100-continue":
                raise BadRequest(417, "nothing but 100-continue can be expected")
            self.expects_continue = True
        version = parser.get_http_version()
        if version != "1.1":
            if version != "1.0":
                raise BadRequest(400, f"HTTP/{version} is not spoken here")
            request.chunked = False

    def on_body(self, body: bytes) -> None:
        if not self._body:
            self._body = body
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += body

    def on_message_complete(self) -> None:
        if self._upgrade:
            return  # the parser gave up on the body; _decline_upgrade reads it
        request = cast(Request, self.request)
        request.body = bytes(self._body)
        request.keep_alive = request.chunked and self._parser.should_keep_alive()
        self.request = None
        self._body = b""
        self._received = 0
        self._over = not request.keep_alive
        self._completed = request
        self._complete(request)

    def _check_head(self, headers: dict[bytes, bytes]) -> None:
        """The size of a head that came with more than it: only looked at when both together are over the limit."""
        size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in headers.items())
        if size > self._limits.header_bytes:
            raise BadRequest(431, f"the head is larger than {self._limits.header_bytes} bytes")

    def _check_size(self) -> None:
        """What the parser holds back and never hands out: an endless name, an endless chunk extension."""
        limits = self._limits
        if not self.in_body and self._received > limits.header_bytes:
            raise BadRequest(431, f"the head is larger than {limits.header_bytes} bytes")
        if self._received > limits.body_bytes + limits.header_bytes:
            raise BadRequest(413, f"the body is larger than {limits.body_bytes} bytes")

    def _take_target(self, request: Request) -> None:
        """Path and query. With a whole URL as target, its authority replaces ``Host`` (RFC 9112, 3.2.2)."""
        target = self._url
        if not target.startswith(b"/"):
            scheme, found, rest = target.partition(b"://")
            if not found or scheme.lower() not in (b"http", b"https"):
                raise BadRequest(400, "the request target must be a path")
            request.headers[b"host"], _, path = rest.partition(b"/")
            target = b"/" + path
        path, _, request.query = target.partition(b"?")
        request.path = path.decode("latin-1")

    def _decline_upgrade(self) -> None:
        """Read on as if no other protocol had been offered, as RFC 9110 (7.8) allows: some clients offer HTTP/2 with
        their first POST, and the parser skips its body then. The head is replayed without the offer."""
        request = cast(Request, self.request)
        self._upgrade = False
        self._parser = httptools.HttpRequestParser(self)
        kept = [name + b": " + value for name, value in request.headers.items() if name not in _OF_UPGRADE]
        self._received = 0
        self._parse(b"\r\n".join((request.method + b" " + self._url + b" HTTP/1.1", *kept, b"", b"")))
