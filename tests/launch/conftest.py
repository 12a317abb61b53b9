"""Real processes for the tests of the launch room."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from mooring.launch.kept import Keeper, Kept


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def gone(*pids: int, within: float = 5.0) -> None:
    """Wait for all of them to end."""
    deadline = time.monotonic() + within
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < deadline, f"still alive after {within} s: {left}"
        await asyncio.sleep(0.005)


async def line(fd: int, within: float = 10.0) -> str:
    """The next line of a non-blocking pipe."""
    deadline = time.monotonic() + within
    data = b""
    while not data.endswith(b"\n"):
        assert time.monotonic() < deadline, f"no whole line within {within} s: {data!r}"
        if not select.select([fd], [], [], 0)[0]:
            await asyncio.sleep(0.002)
            continue
        piece = os.read(fd, 1)
        assert piece, f"the pipe ended after {data!r}"
        data += piece
    return data.decode().strip()


def python(code: str) -> list[str]:
    """The argv of a small Python program that starts fast."""
    return [sys.executable, "-I", "-S", "-c", code]


STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
while True: time.sleep(1000)
"""
"""Ignores the end of its stdin and SIGTERM."""

STRAYING = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
middle = os.fork()
if middle == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(1000)
    os._exit(0)
os.waitpid(middle, 0)
"""
"""Leaves a grandchild in a session of its own whose parent is gone; prints the grandchild's pid."""


class Bench:
    """What tests need besides the keeper itself."""

    alive = staticmethod(alive)
    gone = staticmethod(gone)
    line = staticmethod(line)
    python = staticmethod(python)
    stubborn = STUBBORN
    straying = STRAYING

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.mine: list[int] = []

    async def spawn(self, *argv: str, env: dict[str, str] | None = None, cwd: str = "/") -> Kept:
        kept = await self.keeper.spawn(argv, env or {}, cwd)
        self.mine += [kept.stdin_fd, kept.stdout_fd, kept.stderr_fd]
        return kept

    def close(self, fd: int) -> None:
        self.mine.remove(fd)
        os.close(fd)

    def close_all(self) -> None:
        while self.mine:
            os.close(self.mine.pop())


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Keeper() as keeper:
        bench = Bench(keeper)
        try:
            yield bench
        finally:
            bench.close_all()


@pytest.fixture
def source() -> Path:
    return Path(__file__).parents[2] / "src"


@pytest.fixture
def open_descriptors() -> Callable[[], set[str]]:
    def listed() -> set[str]:
        found = set()
        for name in os.listdir("/proc/self/fd"):
            try:
                found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
            except OSError:  # the one that lists
                continue
        return found

    return listed


class Inside:
    """A program that runs in a namespace."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        async with asyncio.timeout(20):
            return (await self.process.stdout.readline()).decode().strip()


class Namespace:
    """A network namespace of its own with nothing in it, and a process that holds it."""

    def __init__(self, holder: asyncio.subprocess.Process) -> None:
        self._holder = holder
        self.pid = holder.pid

    @asynccontextmanager
    async def running(self, code: str, *args: str) -> AsyncIterator[Inside]:
        """A Python program inside."""
        process = await asyncio.create_subprocess_exec(
            *("nsenter", f"--net=/proc/{self.pid}/ns/net", *python(code), *args),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            yield Inside(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def run(self, code: str, *args: str) -> str:
        """What it prints."""
        async with self.running(code, *args) as inside, asyncio.timeout(30):
            output, _ = await inside.process.communicate()
        return output.decode().strip()

    async def end(self) -> None:
        if self._holder.returncode is None:
            self._holder.kill()
        await self._holder.wait()


@pytest.fixture
async def namespace() -> AsyncIterator[Namespace]:
    for program in ("unshare", "nsenter"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}: apt-get install util-linux")
    if os.geteuid() != 0:
        pytest.skip("a network namespace without a user namespace needs root")
    holder = await asyncio.create_subprocess_exec("unshare", "--net", "sh", "-c", "echo; exec sleep 600", stdout=-1)
    await holder.stdout.readline()
    made = Namespace(holder)
    try:
        yield made
    finally:
        await made.end()
