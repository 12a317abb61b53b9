"""A throw-away home in which a program runs: nothing of the user's is read, and nothing but loopback is needed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from mooring.testing.daemon import Daemon

LIMIT = 90.0
"""Seconds for one run of a program; on an idle machine the slowest takes three."""
ENDING = 10.0
"""Seconds a program has to end when its input has ended."""


class Reach(msgspec.Struct):
    """How a client reaches a workspace: ``url`` and ``key`` over HTTP, else ``command`` over stdio."""

    url: str = ""
    key: str = ""
    command: list[str] = []
    env: dict[str, str] = {}


async def reach(running: Daemon, front: str, workspace: str = "w") -> Reach:
    """What a user would put into a client's configuration; ``front`` is http or stdio."""
    if front == "http":
        return Reach(url=running.endpoint, key=await running.key(workspace))
    command = [sys.executable, "-m", "mooring", "stdio", "-w", workspace]
    return Reach(command=command, env={"MOORING_HOME": str(running.home)})


class Ran(msgspec.Struct):
    """What a program left."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """stdout as JSON; the test fails unless the program exited with 0."""
        assert self.code == 0, f"exit code {self.code}\n{self.err}\n{self.out}"
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """stdout as lines of JSON."""
        assert self.code == 0, f"exit code {self.code}\n{self.err}\n{self.out}"
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


class Place:
    """Home and working folder of one program, and its whole environment."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work = folder / "user", folder / "work"
        for each in (self.home, self.work):
            each.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_COLOR": "1",
        }

    def write(self, path: str, text: str) -> Path:
        """A file in the home."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o600)
        return file

    async def run(self, argv: list[str], **env: str) -> Ran:
        """Run a program to its end, without input."""
        async with self.started(argv, stdin=asyncio.subprocess.DEVNULL, **env) as process:
            out, err = await process.communicate()
        return Ran(process.returncode or 0, out.decode(), err.decode())

    @asynccontextmanager
    async def started(
        self, argv: list[str], stdin: int = asyncio.subprocess.PIPE, **env: str
    ) -> AsyncGenerator[asyncio.subprocess.Process]:
        """A running program. The block is bounded; at its end the input is closed, and what does not end then is
        killed with all it has started in its group."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            env={**self.env, **env},
            cwd=self.work,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 24,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(LIMIT):
                yield process
            if process.stdin is not None:
                process.stdin.close()
            async with asyncio.timeout(ENDING):
                await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
