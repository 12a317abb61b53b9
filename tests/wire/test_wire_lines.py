"""Bytes to lines: nothing is lost, nothing grows without bound, nothing raises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mooring.wire.lines import LIMIT, Lines


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


@given(st.lists(st.binary(max_size=20)), st.binary(max_size=20), st.lists(st.integers(0)))
def test_lines_do_not_depend_on_how_the_bytes_were_cut(lines: list[bytes], rest: bytes, cuts: list[int]) -> None:
    """R27: whole lines come out in order, whatever the chunks; blank ones do not count; an unfinished one waits."""
    lines = [line.replace(b"\n", b"") for line in lines]
    rest = rest.replace(b"\n", b"")
    stream = b"".join(line + b"\n" for line in lines) + rest
    split = Lines()
    got = [line for chunk in chunks(stream, cuts) for line in split.feed(chunk)]
    assert got == [line for line in lines if line.strip()]
    assert split.feed(b"\n") == ([rest] if rest.strip() else [])
    assert split.dropped == 0


@given(st.lists(st.integers(0, 12)), st.lists(st.integers(0)))
def test_lines_over_the_limit_are_dropped_and_counted(sizes: list[int], cuts: list[int]) -> None:
    """R27: a line that is too long costs only itself, and no memory."""
    split = Lines(limit=8)
    stream = b"".join(b"x" * size + b"\n" for size in sizes)
    got = [len(line) for chunk in chunks(stream, cuts) for line in split.feed(chunk)]
    assert got == [size for size in sizes if 0 < size <= 8]
    assert split.dropped == sum(size > 8 for size in sizes)


def test_an_endless_line_does_not_grow_memory() -> None:
    split = Lines(limit=1000)
    for _ in range(10_000):
        assert split.feed(b"x" * 100) == []
    assert len(split._rest) <= 1000
    assert split.feed(b"\nnext\n") == [b"next"]
    assert split.dropped == 1


def test_the_default_limit_is_64_mib() -> None:
    assert Lines().limit == LIMIT == 64 * 1024 * 1024
