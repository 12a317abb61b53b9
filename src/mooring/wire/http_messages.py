"""What HTTP carries here: a request that was read, the reply to write, and the limits of both. Plain shapes.

Made by ``wire.http_connection``, consumed by handlers (``wire.http_front``, ``serve.app``). Nothing here does I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from mooring.wire.jsonrpc import text

if TYPE_CHECKING:
    from mooring.wire.http_replay import Outlet

JSON = b"Content-Type: application/json\r\n"
"""Header lines of a JSON answer."""

_REASONS = {
    200: b"OK",
    202: b"Accepted",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    408: b"Request Timeout",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    417: b"Expectation Failed",
    421: b"Misdirected Request",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
STATUS_LINES = {status: b"HTTP/1.1 %d %b\r\n" % (status, reason) for status, reason in _REASONS.items()}


class Limits(msgspec.Struct, frozen=True):
    """How much one peer may ask of the server. Sizes in bytes, times in seconds.

    A body may be as large as a line of a stdio server (64 MiB), so that a message which one side takes never dies on
    the other. That is safe because ``admit`` refuses a peer without a key before its body is read, and because a body
    must arrive within ``body_timeout``.
    """

    header_bytes: int = 64 << 10
    body_bytes: int = 64 << 20
    """As sent: chunk framing counts."""
    unsent_bytes: int = 4 << 20
    """What a stream may hold for a peer that does not read, besides its largest piece, which takes its time also with
    one that does; beyond it the connection is cut."""
    header_timeout: float = 30.0
    """From the first byte of a request to the end of its head, and from connect to the first byte."""
    body_timeout: float = 120.0
    write_timeout: float = 60.0
    """Without any progress while the peer's window is full."""
    idle_timeout: float = 120.0
    """Between the requests of a kept connection."""
    connections: int = 4096
    connections_per_peer: int = 1024
    """High, since all local clients share one address."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A whole answer. ``headers``: complete lines, each ending in CRLF; ``Content-Length`` and ``Connection`` are the
    server's."""

    status: int
    body: bytes = b""
    headers: bytes = JSON


def problem(status: int, message: str, headers: bytes = b"") -> Reply:
    """A refusal outside MCP: ``{"error": message}``."""
    return Reply(status, text({"error": message}), JSON + headers)


class Carrier(Protocol):
    """What a request came over and its stream goes out on: the connection."""

    def begin(self, request: Request, headers: bytes, keep_alive: bytes) -> Stream: ...
    def carries(self, stream: Stream) -> bool: ...
    def send(self, stream: Stream, data: bytes) -> bool: ...
    def cancel(self, request: Request) -> None: ...


class Request:
    """One request as it was read: ``headers`` by lowercase name, ``peer`` the client's address. Not to be changed:
    requests with equal heads share their headers."""

    __slots__ = (
        "_carrier",
        "body",
        "chunked",
        "headers",
        "keep_alive",
        "method",
        "outlet",
        "path",
        "peer",
        "query",
        "stream",
        "survives",
    )

    def __init__(self, carrier: Carrier, peer: str) -> None:
        self._carrier = carrier
        self.peer = peer
        self.method = b""
        self.path = ""
        self.query = b""
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.chunked = True
        """Whether the client understands chunks (HTTP/1.1)."""
        self.keep_alive = True
        self.stream: Stream | None = None
        """The streamed answer, once it was begun."""
        self.outlet: Outlet | None = None
        """What keeps that stream for a client that comes back; set by ``wire.http_session``."""
        self.survives = False
        """Set by a handler whose work goes on when its client is gone; its task is not cancelled then."""

    def begin(self, headers: bytes, keep_alive: bytes) -> Stream:
        """Start to stream the answer: status 200, ``headers`` as in Reply. Once a request; the handler returns the
        stream when it is complete. ``keep_alive`` is sent whenever the stream was silent for 15 s."""
        self.stream = self._carrier.begin(self, headers, keep_alive)
        return self.stream

    def cancel(self) -> None:
        """Cancel the task that answers this request."""
        self._carrier.cancel(self)


class Stream:
    """An answer of unknown length, sent piece by piece."""

    __slots__ = ("_carrier", "keep_alive", "largest", "request", "sent_at")

    def __init__(self, carrier: Carrier, request: Request, keep_alive: bytes) -> None:
        self._carrier = carrier
        self.request = request
        self.keep_alive = keep_alive
        self.sent_at = 0.0
        """Loop time of the last piece."""
        self.largest = 0
        """Bytes of the largest piece, if it was a large one."""

    @property
    def open(self) -> bool:
        """Whether a piece that is sent now can reach the client."""
        return self._carrier.carries(self)

    def send(self, data: bytes) -> bool:
        """Send one piece, not empty. False when the client is gone, or was cut off because it does not read."""
        return self._carrier.send(self, data)
