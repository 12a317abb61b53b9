"""The two pipes of a server on stdio: lines in, frames out, and the moment it is over.

Used by ``wire.stdio_upstream`` alone. One callback a line; no task, queue or stream. It never looks into a line.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from mooring.launch.base import Pipes
from mooring.wire.lines import Lines
from mooring.wire.pipes import taken_over

QUEUE = 8 * 1024 * 1024
"""Bytes that may wait for a server that does not read; beyond it nothing more is taken."""
EXIT_REPORT = 0.1
"""Seconds that a closed pipe waits for the report of the exit which usually explains it. The report comes within a
millisecond, on a busy machine later. Only a server that closes its output and lives on makes anybody wait."""
_CHUNK = 65536
_PIPE_CHUNKS = 16  # a pipe holds 1 MiB at most


class Pipe(asyncio.Protocol):
    """Both directions. ``line`` is called with each line of the server and must not raise; ``ended`` once, with the
    reason, when the server is gone or hung up, after everything it wrote has been given to ``line``."""

    def __init__(
        self, exited: asyncio.Future[int | None], line: Callable[[bytes], None], ended: Callable[[str], None]
    ) -> None:
        self.open = False
        self._exited = exited
        self._line = line
        self._ended = ended
        self._lines = Lines()
        self._fd = -1
        self._reader: asyncio.ReadTransport | None = None
        self._writer: asyncio.WriteTransport | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._over = False

    @property
    def dropped(self) -> int:
        """How many lines were too long."""
        return self._lines.dropped

    @property
    def full(self) -> bool:
        """Whether the server has stopped reading for so long that nothing more is taken."""
        return self._writer is not None and self._writer.get_write_buffer_size() > QUEUE

    async def start(self, pipes: Pipes) -> None:
        """Take over the descriptors; from here on they are closed with the pipe."""
        self._fd = pipes.reader
        self._reader, self._writer = await taken_over(pipes, lambda: self, lambda: _Writer(self._writer_lost))
        self.open = True
        if pipes.leftover:
            self.data_received(pipes.leftover)
        self._exited.add_done_callback(self._exit_reported)

    def send(self, frame: bytes) -> bool:
        """Write one message; False, and nothing written, when the pipe is not open or is full.

        A payload may be laid out over several lines; in valid JSON a bare line break is white space only.
        """
        if not self.open or self._writer is None or self._writer.is_closing() or self.full:
            return False
        if b"\n" in frame or b"\r" in frame:
            frame = frame.replace(b"\r", b" ").replace(b"\n", b" ")
        self._writer.write(frame + b"\n")
        return True

    def close(self) -> None:
        """Close the server's stdin; what it still writes is read and thrown away until it is gone."""
        self.open = False
        self._over = True
        if self._writer is not None:
            self._writer.close()
        if self._exited.done():
            self._release()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop with each chunk of the server's stdout."""
        if self._over:
            return
        for line in self._lines.feed(data):
            self._line(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop at the end of the server's stdout."""
        self.hung_up("closed its output")

    def hung_up(self, reason: str) -> None:
        """One pipe is closed. Nothing more is sent; the exit that is about to be reported is the better reason."""
        self.open = False
        if not self._over and self._grace is None:
            self._grace = asyncio.get_running_loop().call_later(EXIT_REPORT, self._end, reason)

    def _writer_lost(self) -> None:
        self._writer = None
        self.hung_up("closed its input")

    def _exit_reported(self, exited: asyncio.Future[int | None]) -> None:
        self._end("ended" if exited.cancelled() else _exit_text(exited.result()))
        self._release()

    def _drain(self) -> None:
        """Read what the server wrote before it ended: word of the end may come before its last words do."""
        if self._reader is None or self._reader.is_closing():
            return
        with suppress(OSError):
            for _ in range(_PIPE_CHUNKS):
                self.data_received(os.read(self._fd, _CHUNK))

    def _end(self, reason: str) -> None:
        self.open = False
        if self._grace is not None:
            self._grace.cancel()
        if not self._over:
            self._drain()
            self._over = True
            self._ended(reason)

    def _release(self) -> None:
        if self._writer is not None:
            self._writer.abort()
        if self._reader is not None:
            self._reader.close()


class _Writer(asyncio.BaseProtocol):
    """The server's stdin; it has nothing to tell but its end."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()


def _exit_text(code: int | None) -> str:
    if code is None:
        return "was ended together with what kept it"
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"
