"""The last words of a server: its stderr, always drained, of which a bounded tail is kept.

Opened by launchers for every process; read by error texts, ``mooring ps`` and ``mooring logs``. It never lets a server
block on a full pipe and never grows beyond its limits, whatever is written.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

KEPT = 64 * 1024
"""Bytes of the tail."""
LINE = 4 * 1024
"""Bytes kept of one line; the rest of it is dropped."""
CHUNK = 64 * 1024
"""Bytes of one read: one per turn of the loop, so that a flood leaves time for others."""
CATCH_UP = 16
"""Chunks to read at once at most: as much as the largest pipe holds without privileges."""


class LastLines:
    """The last lines of a stream of bytes, cut and bounded. Pure."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._open = bytearray()  # the line that has no newline yet

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, without newline."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes] = []
        for piece in ended:
            self._append(piece)
            lines.append(bytes(self._open))
            self._open.clear()
        self._append(rest)
        self._keep(lines)
        return lines

    def last(self, count: int) -> list[bytes]:
        """At most ``count`` lines, an unfinished one too."""
        lines = [*self._lines, bytes(self._open)] if self._open else list(self._lines)
        return lines[-count:]

    def _append(self, piece: bytes) -> None:
        self._open += piece[: LINE - len(self._open)]

    def _keep(self, lines: list[bytes]) -> None:
        self._lines += lines
        self._size += sum(len(line) + 1 for line in lines)
        while self._size > KEPT:
            self._size -= len(self._lines.popleft()) + 1


class StderrTail:
    """The tail of one pipe. Takes ``fd`` (non-blocking) over and closes it at its end or in ``close``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines = LastLines()
        self._followers: list[Callable[[str], None]] = []
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._read)

    def text(self, lines: int = 20) -> str:
        """The last lines, without a newline at the end; what is not UTF-8 is replaced."""
        self._catch_up()
        return "\n".join(map(_decode, self._lines.last(lines)))

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]:
        """Call ``follower`` with each further line, until the returned function is called."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    def close(self) -> None:
        """Take what is still there and let go of the pipe. May be called again."""
        self._catch_up()
        self._let_go()

    def _let_go(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _catch_up(self) -> None:
        """What was written before this moment; bounded, as the writer may be faster than we are."""
        for _ in range(CATCH_UP):
            if not self._read():
                return

    def _read(self) -> bool:
        """Take one chunk; False when there is none now."""
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._let_go()
        for line in self._lines.feed(data):
            for follower in tuple(self._followers):
                follower(_decode(line))
        return bool(data)


def _decode(line: bytes) -> str:
    return line.rstrip(b"\r").decode("utf-8", "replace")
