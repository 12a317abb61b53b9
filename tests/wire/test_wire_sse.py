"""The reader of event streams, against every way to cut one into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.wire.sse import Event, Events, TooLong

STREAM = (
    b"\xef\xbb\xbf: hello\r\n\r\n"
    b"id: 1\r\ndata:\r\n\r\n"
    b"event: endpoint\ndata: /a?b=c\n\n"
    b'data: {"a":\ndata:  "\xc3\xa9\xff"}\nid: 2\nretry: 1500\n\n'
    b"data: last\r\r"
)
FOUND = [Event(b"/a?b=c", "endpoint"), Event(b'{"a":\n "\xc3\xa9\xff"}'), Event(b"last")]


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(stream)) for place in places})
    return [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_however_it_is_cut_the_events_are_the_same(places: list[int]) -> None:
    """Line ends of all kinds, a byte order mark, comments, several data lines, bytes that are no text, an event without
    data. What is complete comes at once, whatever may follow."""
    events = Events()
    assert [event for piece in cut(STREAM, places) for event in events.feed(piece)] == FOUND
    assert (events.last_id, events.retry) == ("2", 1.5)


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_no_bytes_make_it_fail(pieces: list[bytes]) -> None:
    """Whatever a server writes, there are events or none."""
    events = Events()
    for piece in pieces:
        events.feed(piece)


def test_a_byte_order_mark_is_skipped_and_ids_are_kept_over_connections() -> None:
    events = Events()
    assert events.feed(b"\xef\xbb\xbfid: 7\ndata: x\n\ndata: half") == [Event(b"x")]
    events.reopened()
    assert events.last_id == "7"
    assert events.feed(b"data: y\n\n") == [Event(b"y")]


def test_a_byte_order_mark_counts_at_the_beginning_only() -> None:
    events = Events()
    assert events.feed(b"\xef") == []
    assert events.feed(b"\xbb\xbfdata: x\n\n\xef\xbb\xbfdata: y\n\n") == [Event(b"x")]


@pytest.mark.parametrize("piece", [b"data: 123456\n", b"data: 1234567", b":" + b"x" * 8, b"data\n" * 6])
def test_an_event_has_a_longest_length(piece: bytes) -> None:
    events = Events(limit=20)
    events.feed(piece)
    with pytest.raises(TooLong):
        events.feed(piece * 4)
