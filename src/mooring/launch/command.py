"""One command run to its end in the keeper, with what it prints. For container engines; servers are started elsewhere.

Called by ``launch.engine`` and ``launch.images``. Like everything in the keeper it ends with the daemon, and a command
that is given up is killed with all its descendants.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from mooring.launch.kept import Keeper
from mooring.launch.stderr import StderrTail
from mooring.tasks import finish

OUTPUT = 16 << 20
"""Bytes of output that are kept at most."""
STDIN = 1 << 16
"""Bytes of input at most: as much as a pipe holds that nobody has enlarged."""
CHUNK = 1 << 16
LAST_LINES = 12
"""Lines of stderr that are shown when a command fails."""


class Done(msgspec.Struct, frozen=True):
    """How a command ended. ``code``: exit code, negative for a signal."""

    code: int
    output: bytes
    errors: str

    @property
    def ok(self) -> bool:
        """It succeeded."""
        return self.code == 0


async def run(
    keeper: Keeper,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    limit: float | None,
    stdin: bytes = b"",
    said: Callable[[str], None] | None = None,
) -> Done:
    """Run ``argv`` (absolute program) for ``limit`` seconds at most; ``said`` hears each line of stderr at once.

    ``stdin``: what it reads, ``STDIN`` bytes at most. Raises TimeoutError and OSError.
    """
    kept = await keeper.spawn(argv, env, "/")
    errors = StderrTail(kept.stderr_fd)
    if said is not None:
        errors.follow(said)
    try:
        try:
            if os.write(kept.stdin_fd, stdin) < len(stdin):
                raise OSError(errno.EMSGSIZE, "its input is larger than a pipe holds")
        finally:
            os.close(kept.stdin_fd)
        async with asyncio.timeout(limit):
            output = await _read(kept.stdout_fd, said)
            code = await kept.exited
        return Done(code or 0, output, errors.text(LAST_LINES))
    finally:
        os.close(kept.stdout_fd)
        try:
            await finish(kept.end(0.0))
        finally:
            errors.close()


async def _read(fd: int, said: Callable[[str], None] | None) -> bytes:
    """Everything until the end of ``fd``."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    parts = bytearray()

    def readable() -> None:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        parts.extend(data[: OUTPUT - len(parts)])
        if said is not None:
            for line in data.decode("utf-8", "replace").splitlines():
                said(line)
        if not data and not ended.done():
            loop.remove_reader(fd)
            ended.set_result(None)

    loop.add_reader(fd, readable)
    try:
        await ended
    finally:
        loop.remove_reader(fd)
    return bytes(parts)
