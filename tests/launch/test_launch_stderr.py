"""The bounded tail of a server's stderr."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.launch.stderr import KEPT, LINE, LastLines, StderrTail


class Pipe:
    """A tail and the end that writes to it."""

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        os.set_blocking(reader, False)
        self.tail = StderrTail(reader)

    def write(self, data: bytes) -> None:
        os.write(self.writer, data)

    def end(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.end()
    pipe.tail.close()


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


async def test_the_text_holds_what_was_written_before_it_was_asked_for(pipe: Pipe) -> None:
    """A14: no turn of the loop in between, so that the reason of a crash is never missing."""
    pipe.write(b"one\ntwo\r\nno newline")
    assert pipe.tail.text() == "one\ntwo\nno newline"
    assert pipe.tail.text(lines=2) == "two\nno newline"


async def test_lines_in_pieces_and_text_that_is_not_utf8_are_kept(pipe: Pipe) -> None:
    """A14"""
    for piece in (b"gr", "ün".encode()[:2], "ün".encode()[2:], b"\n\xff\xfe bad", b"\n"):
        pipe.write(piece)
        pipe.tail.text()
    assert pipe.tail.text() == "grün\n\ufffd\ufffd bad"


async def test_a_flood_never_blocks_the_writer_and_only_its_end_is_kept(pipe: Pipe) -> None:
    """A14 R15"""
    size = 5_000_000
    flood = b"".join(b"line %d\n" % n for n in range(size // 10))

    def pour() -> None:
        view = memoryview(flood)
        while view:
            view = view[os.write(pipe.writer, view) :]
        pipe.end()

    await asyncio.wait_for(asyncio.to_thread(pour), 20)
    end = f"line {size // 10 - 2}\nline {size // 10 - 1}"
    await until(lambda: pipe.tail.text(lines=2) == end)
    assert len(pipe.tail.text(lines=size)) <= KEPT


async def test_a_line_without_an_end_is_cut(pipe: Pipe) -> None:
    """A14"""
    for _ in range(5):
        pipe.write(b"x" * 60_000)
        pipe.tail.text()
    pipe.write(b"\nnext\n")
    assert pipe.tail.text() == "x" * LINE + "\nnext"


async def test_followers_get_whole_lines_until_they_stop(pipe: Pipe) -> None:
    heard: list[str] = []
    stop = pipe.tail.follow(heard.append)
    pipe.write(b"one\ntw")
    await until(lambda: heard == ["one"])
    pipe.write(b"o\n")
    await until(lambda: heard == ["one", "two"])
    stop()
    pipe.write(b"three\n")
    assert pipe.tail.text(lines=1) == "three"
    assert heard == ["one", "two"]


async def test_closing_takes_the_last_words_and_may_be_repeated(pipe: Pipe) -> None:
    pipe.write(b"last words")
    pipe.tail.close()
    pipe.tail.close()
    assert pipe.tail.text() == "last words"


@given(chunks=st.lists(st.binary(max_size=3000).map(lambda data: data * 3), max_size=30))
def test_whatever_comes_in_whatever_pieces_the_last_lines_are_right(chunks: list[bytes]) -> None:
    """A14"""
    tail, completed = LastLines(), []
    for chunk in chunks:
        completed += tail.feed(chunk)
    *lines, rest = b"".join(chunks).split(b"\n")
    assert completed == [line[:LINE] for line in lines]
    assert tail.last(5) == [line[:LINE] for line in ([*lines, rest] if rest else lines)][-5:]
    assert sum(map(len, tail.last(KEPT))) <= KEPT + LINE
