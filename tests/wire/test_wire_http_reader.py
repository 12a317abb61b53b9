"""Reading requests: however the bytes are cut, the same requests come out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.wire.http_messages import Limits
from mooring.wire.http_reader import BadRequest, RequestReader


def reader(limits=Limits()):
    read = []
    return RequestReader(None, "peer", limits, read.append), read


def seen(request):
    return request.method, request.path, request.query, dict(request.headers), request.body, request.keep_alive


def post(path: bytes, body: bytes, extra: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: a\r\n%bContent-Length: %d\r\n\r\n%b" % (path, extra, len(body), body)


CHUNKED = b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX: y\r\n\r\n"
UPGRADE = post(b"/u", b"abc", b"Connection: upgrade\r\nUpgrade: h2c\r\n")
requests = st.sampled_from(
    [
        post(b"/a", b"abc"),
        post(b"/a", b"xyz"),
        post(b"/a", b"\r\n\r"),
        post(b"/a", b"\r\n\r\n"),
        post(b"/a?q", b"GET / HTTP/1.1\r\n\r\n"),
        b"GET /g HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\nGET /g HTTP/1.1\r\nHost: a\r\n\r\n",
        CHUNKED,
        UPGRADE,
    ]
)


@given(st.lists(requests, max_size=6), st.data())
def test_any_cut_of_a_stream_gives_the_same_requests(stream, data):
    expected = []
    for each in stream:
        alone, read = reader()
        alone.feed(each)
        expected += [seen(request) for request in read]
    assert len(expected) == len(stream)
    whole, read = reader()
    rest = b"".join(stream)
    while rest:
        size = data.draw(st.integers(1, len(rest)) | st.sampled_from([len(each) for each in stream]))
        whole.feed(rest[:size])
        rest = rest[size:]
    assert [seen(request) for request in read] == expected


def test_an_equal_head_is_not_parsed_again_and_gives_the_same_request():
    again, read = reader()
    again.feed(post(b"/a", b"abc"))
    parser, again._parser = again._parser, None
    again.feed(post(b"/a", b"xyz"))
    assert [request.body for request in read] == [b"abc", b"xyz"]
    assert seen(read[0])[:4] == seen(read[1])[:4]
    again._parser = parser
    again.feed(post(b"/b", b"abc"))
    again.feed(post(b"/a", b"abcd"))
    assert [(request.path, request.body) for request in read[2:]] == [("/b", b"abc"), ("/a", b"abcd")]


def test_the_end_of_a_head_is_never_taken_for_a_known_one():
    cut, read = reader()
    data = post(b"/a", b"abc")
    at = data.index(b"Content-Length")
    cut.feed(data[:at])
    cut.feed(data[at:])
    with pytest.raises(BadRequest):
        cut.feed(data[at:])
    assert len(read) == 1


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_random_bytes_are_refused_or_wait_for_more(parts):
    some, _ = reader(Limits(header_bytes=100, body_bytes=100))
    try:
        for part in parts:
            some.feed(part)
    except BadRequest as error:
        refused = error.reply.status
    else:
        return
    assert 400 <= refused < 500


def test_nothing_of_a_request_is_kept_once_it_was_handed_over():
    import gc

    again, read = reader()
    again.feed(post(b"/a", b"x" * 1000))
    assert read.pop() not in gc.get_referents(again.__dict__)


def test_any_number_of_offers_of_another_protocol_is_declined():
    """As many as come in one piece."""
    read_on, read = reader()
    read_on.feed(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" * 4000)
    assert len(read) == 4000
    assert read_on.request is None
