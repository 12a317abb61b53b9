"""The first message of a client to the egress proxy: where it wants to go, and what to send there. Pure.

Used by ``launch.egress_proxy``. It takes exactly two forms, CONNECT and a whole ``http://`` URL, and refuses everything
it is not sure to read as the other side would.

Source: RFC 9110 sections 7.6 and 9.3.6, RFC 9112 sections 2 to 5.
"""

from __future__ import annotations

import re

import msgspec

from mooring.config.peers import parse_host, parse_peer, show_peer

LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~\x80-\xff]+) (HTTP/1\.[01])")
HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
SCHEME = b"http://"
OF_ONE_HOP = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"te", b"upgrade", b"host")
)
"""Headers that are for the proxy, or that it writes itself."""
FRAMING = frozenset((b"content-length", b"transfer-encoding"))
"""Headers that say how long the body is; nothing may take them away."""


class BadRequest(ValueError):
    """The request cannot be read; the text says why."""


class Request(msgspec.Struct, frozen=True):
    """``host`` and ``port`` as ``config.peers`` writes them. ``head``: what to send there first; None for a tunnel."""

    host: str
    port: int
    head: bytes | None = None

    @property
    def peer(self) -> str:
        """Where it wants to go, as the configuration would say it."""
        return show_peer(self.host, self.port)


def parse(head: bytes) -> Request:
    """A request's head, with the empty line at its end. Raises BadRequest."""
    if not head.endswith(b"\r\n\r\n"):
        raise BadRequest("the head has no end")
    first, *lines = head[:-4].split(b"\r\n")
    found = LINE.fullmatch(first)
    if found is None:
        raise BadRequest("the request line is not that of HTTP/1.1")
    method, target, version = found.groups()
    headers = [_header(line) for line in lines]
    if method == b"CONNECT":
        return Request(*_peer(target.decode("latin-1")))
    if target[: len(SCHEME)].lower() != SCHEME:
        raise BadRequest("this is a proxy: it takes CONNECT and whole http:// URLs")
    host, port, path = _url(target[len(SCHEME) :])
    place = show_peer(host, port) if port != 80 else show_peer(host, port).removesuffix(":80")
    kept = [line for name, line in headers if name not in OF_ONE_HOP | _nominated(headers)]
    start = b"%s %s %s" % (method, path, version)
    lines = [start, b"Host: " + place.encode(), *kept, b"Connection: close"]
    return Request(host, port, b"\r\n".join(lines) + b"\r\n\r\n")


def _header(line: bytes) -> tuple[bytes, bytes]:
    """Its name in lower case, and the line."""
    found = HEADER.fullmatch(line)
    if found is None:
        raise BadRequest("a header is not one")
    return found[1].lower(), line


def _nominated(headers: list[tuple[bytes, bytes]]) -> set[bytes]:
    """Further headers that the client says are for the proxy."""
    values = [line.partition(b":")[2] for name, line in headers if name == b"connection"]
    return {name.strip().lower() for value in values for name in value.split(b",")} - FRAMING


def _url(rest: bytes) -> tuple[str, int, bytes]:
    """Host, port and path of a URL without its scheme."""
    end = min((at for mark in b"/?#" if (at := rest.find(mark)) >= 0), default=len(rest))
    authority, path = rest[:end].decode("latin-1"), rest[end:].partition(b"#")[0]
    if not path.startswith(b"/"):
        path = b"/" + path
    if "@" in authority:
        raise BadRequest("a URL with a user in it is not taken")
    host = authority[: authority.rfind("]") + 1]
    if not host:
        host = authority.partition(":")[0]
    if authority in (host, host + ":"):
        try:
            return parse_host(host), 80, path
        except ValueError as error:
            raise BadRequest(str(error)) from None
    return *_peer(authority), path


def _peer(text: str) -> tuple[str, int]:
    try:
        return parse_peer(text)
    except ValueError as error:
        raise BadRequest(str(error)) from None
