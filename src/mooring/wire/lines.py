"""Bytes as they arrive to whole lines. Pure.

Both ends of stdio frame their messages by newline; ``wire.stdio_upstream`` and ``wire.stdio_front`` feed their chunks
here. It never looks into a line and never raises. Source: MCP 2025-11-25 and 2026-07-28 "stdio".
"""

from __future__ import annotations

LIMIT = 64 * 1024 * 1024


class Lines:
    """The lines of one byte stream.

    ``limit``: the longest line in bytes, without its newline. A longer one is dropped and counted in ``dropped``; what
    has come of it is let go at once, so that memory stays within the limit.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.dropped = 0
        self._rest: list[bytes] = []
        self._size = 0  # of the unfinished line, also while it is being dropped

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, without newline; blank ones are left out. The rest is kept."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes] = []
        for piece in ended:
            line = self._end(piece)
            if line and not line.isspace():
                lines.append(line)
        self._keep(rest)
        return lines

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self.limit:
            self._rest.clear()
        else:
            self._rest.append(piece)

    def _end(self, piece: bytes) -> bytes:
        if not self._size and len(piece) <= self.limit:
            return piece
        self._keep(piece)
        self.dropped += self._size > self.limit
        line = b"".join(self._rest)
        self._rest.clear()
        self._size = 0
        return line
