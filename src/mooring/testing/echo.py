"""``python -m mooring.testing.echo``: an MCP server on stdio that behaves, or misbehaves, as its flags say.

Raw: no SDK, no asyncio, standard library only, so that it starts in a few hundredths of a second and does exactly
what is written here. ``docs/testing.md`` lists flags and tools. It ends with its stdin, unless told otherwise; with
``--http`` or ``--sse`` it is a server on HTTP instead (``mooring.testing.echo_http``).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from argparse import Namespace
from contextlib import suppress

from mooring.testing import tools
from mooring.testing.flags import parser
from mooring.testing.server import Server

GARBAGE = b'Server is ready!\n\n{"jsonrpc":"2.0","id":1,"res\n[1,2\n'
NOT_UTF8 = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\xff\xfe\xc3\x28"}}\n'
_CHUNK = 1 << 18


class Output:
    """stdout, one whole line at a time whatever thread writes."""

    def __init__(self, dirt: bytes) -> None:
        self._dirt = dirt
        self._lock = threading.Lock()

    def write(self, text: str, about: object = None) -> None:
        """Write a line; the empty text stands for the dirt that the flags ask for."""
        left = memoryview(text.encode() + b"\n" if text else self._dirt)
        with self._lock:
            while left:
                left = left[os.write(1, left) :]


def _prepare(flags: Namespace) -> None:
    """Everything that happens before the first byte is read."""
    if flags.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if flags.spawn_grandchild:
        sleep = ["sleep", "600"]
        tools.grandchildren += [
            os.posix_spawnp("sleep", sleep, os.environ),
            os.posix_spawnp("sleep", sleep, os.environ, setsid=True),
        ]
    if flags.stderr_noise:
        line = b"noise " * 16 + b"\n"
        noise = memoryview((line * (flags.stderr_noise // len(line) + 1))[: flags.stderr_noise])
        while noise:
            noise = noise[os.write(2, noise) :]
    if flags.crash_at_start:
        tools.die("cannot start")
    time.sleep(flags.start_delay)


def _serve(server: Server) -> None:
    """Feed the lines of stdin to the server until it ends."""
    parts: list[bytes] = []
    while data := os.read(0, _CHUNK):
        *lines, rest = data.split(b"\n")
        for line in lines:
            server.receive(b"".join((*parts, line)))
            parts.clear()
        parts.append(rest)


def main() -> None:
    """Run the server."""
    flags = parser().parse_args()
    output = Output((GARBAGE if flags.garbage else b"") + (NOT_UTF8 if flags.non_utf8 else b""))
    _prepare(flags)
    if flags.http is not None or flags.sse is not None:
        from mooring.testing.echo_http import serve

        serve(flags)
        return
    output.write("")
    with suppress(BrokenPipeError, KeyboardInterrupt):
        _serve(Server(flags, output.write))
    if flags.ignore_eof:
        time.sleep(600)
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
