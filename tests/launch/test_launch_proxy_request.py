"""What the egress proxy reads in a request: exactly two forms, and nothing it could misread."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mooring.config.peers import parse_peer
from mooring.launch.proxy_request import BadRequest, Request, parse


def head(*lines: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1")


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [
        ("api.example:443", "api.example", 443),
        ("API.Example.:443", "api.example", 443),
        ("127.0.0.1:1", "127.0.0.1", 1),
        ("[::1]:65535", "::1", 65535),
        ("[0:0:0:0:0:0:0:1]:80", "::1", 80),
    ],
)
def test_connect_names_a_peer(target: str, host: str, port: int) -> None:
    assert parse(head(f"CONNECT {target} HTTP/1.1", "Host: other:1")) == Request(host, port)


@pytest.mark.parametrize(
    ("url", "peer", "sent"),
    [
        ("http://a.example/x?y=1", "a.example:80", "GET /x?y=1 HTTP/1.1|Host: a.example"),
        ("HTTP://A.example:8080", "a.example:8080", "GET / HTTP/1.1|Host: a.example:8080"),
        ("http://a.example?q", "a.example:80", "GET /?q HTTP/1.1|Host: a.example"),
        ("http://a.example:80/#top", "a.example:80", "GET / HTTP/1.1|Host: a.example"),
        ("http://a.example:/", "a.example:80", "GET / HTTP/1.1|Host: a.example"),
        ("http://[::1]/", "[::1]:80", "GET / HTTP/1.1|Host: [::1]"),
        ("http://[::1]:8000/%20", "[::1]:8000", "GET /%20 HTTP/1.1|Host: [::1]:8000"),
    ],
)
def test_a_whole_url_becomes_a_request_to_its_host(url: str, peer: str, sent: str) -> None:
    """The Host header is the one of the URL, whatever the client wrote: RFC 9112 section 3.2.2."""
    request = parse(head(f"GET {url} HTTP/1.1", "Host: lie.example", "Accept: */*"))
    assert request.peer == peer
    assert request.head == head(*sent.split("|"), "Accept: */*", "Connection: close")


def test_headers_for_one_hop_stay_here() -> None:
    request = parse(
        head(
            "POST http://a.example/ HTTP/1.1",
            "Proxy-Authorization: Basic eDp5",
            "Connection: keep-alive, X-Mine, Content-Length",
            "X-Mine: 1",
            "Upgrade: websocket",
            "Content-Length: 3",
            "X-Other:2",
        )
    )
    assert request.head == head(
        "POST / HTTP/1.1", "Host: a.example", "Content-Length: 3", "X-Other:2", "Connection: close"
    )


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["GET / HTTP/1.1", "Host: a.example"], "this is a proxy"),
        (["OPTIONS * HTTP/1.1"], "this is a proxy"),
        (["GET https://a.example/ HTTP/1.1"], "this is a proxy"),
        (["GET ftp://a.example/ HTTP/1.1"], "this is a proxy"),
        (["CONNECT a.example HTTP/1.1"], "host:port"),
        (["CONNECT http://a.example:80/ HTTP/1.1"], "host:port"),
        (["CONNECT a.example:0 HTTP/1.1"], "host:port"),
        (["CONNECT a.example:65536 HTTP/1.1"], "host:port"),
        (["CONNECT a.example:+80 HTTP/1.1"], "host:port"),
        (["CONNECT :80 HTTP/1.1"], "not a host"),
        (["CONNECT ::1:80 HTTP/1.1"], "not a host"),
        (["CONNECT [::1%lo]:80 HTTP/1.1"], "not a host"),
        (["CONNECT [127.0.0.1]:80 HTTP/1.1"], "not a host"),
        (["CONNECT user@a.example:80 HTTP/1.1"], "not a host"),
        (["CONNECT a.exam\xe9ple:80 HTTP/1.1"], "not a host"),
        (["GET http://user:pass@a.example/ HTTP/1.1"], "user"),
        (["GET http:///x HTTP/1.1"], "not a host"),
        (["GET http://a.example:80:80/ HTTP/1.1"], "not a host"),
        (["GET http://a.example/ x HTTP/1.1"], "request line"),
        (["GET  http://a.example/ HTTP/1.1"], "request line"),
        (["GET http://a.example/ HTTP/2.0"], "request line"),
        (["G\x01T http://a.example/ HTTP/1.1"], "request line"),
        (["GET http://a.example/\x00 HTTP/1.1"], "request line"),
        ([""], "request line"),
        (["GET http://a.example/ HTTP/1.1", "no colon"], "header"),
        (["GET http://a.example/ HTTP/1.1", "A: 1", " folded"], "header"),
        (["GET http://a.example/ HTTP/1.1", "A : 1"], "header"),
        (["GET http://a.example/ HTTP/1.1", "A: \x00"], "header"),
        (["GET http://a.example/ HTTP/1.1", "A: 1\nB: 2"], "header"),
        (["GET http://a.example/ HTTP/1.1", "A: 1\rB: 2"], "header"),
    ],
)
def test_all_else_is_refused_with_the_reason(lines: list[str], why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        parse(head(*lines))


def test_a_head_without_end_is_refused() -> None:
    with pytest.raises(BadRequest, match="no end"):
        parse(b"CONNECT a.example:80 HTTP/1.1\r\n")


PIECES = st.sampled_from(
    (
        b"CONNECT |GET |http://|a.example|127.0.0.1|[::1]|:80|:|/|@|#|?|*| HTTP/1.1|\r\n|\n|\r| |\t|Host: x|"
        b"Connection: close|\x00|\xff|%00|."
    ).split(b"|")
)


@given(st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=20).map(b"".join)))
@example(b"GET http://a.example\r\nHost: b HTTP/1.1")
def test_whatever_comes_is_read_one_way_or_refused(data: bytes) -> None:
    """What is sent on names the peer that was checked, in one request line and one Host header."""
    try:
        request = parse(data + b"\r\n\r\n")
    except BadRequest:
        return
    assert parse_peer(request.peer) == (request.host, request.port)
    if request.head is not None:
        first, host, *_ = request.head.split(b"\r\n")
        assert first.count(b" ") == 2
        assert host.removesuffix(b":80") in (b"Host: " + request.peer.encode(), f"Host: {request.peer[:-3]}".encode())
        assert request.head.lower().count(b"\r\nhost:") == 1
        assert request.head.endswith(b"\r\nConnection: close\r\n\r\n")
        assert b"\n" not in request.head.replace(b"\r\n", b"")
