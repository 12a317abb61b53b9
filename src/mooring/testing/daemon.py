"""A real Mooring daemon for tests: its own home, its own free port, ended by pid.

    async with daemon(tmp_path, {"echo": server("--era", "legacy")}) as running:
        async with await running.client("w") as client: ...

``mooring up`` runs as a process of its own, so what is tested is what people use. Also for authors of plugins.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from mooring.config.home import Home
from mooring.facade import Mooring
from mooring.nouns import InstanceRow
from mooring.serve.control_client import connected
from mooring.testing import echo
from mooring.testing.http_client import HttpClient
from mooring.testing.speech import Era
from mooring.testing.waiting import wait_for

READY = 60.0
"""Seconds a daemon has until its endpoint is known."""
COMMAND = 60.0
"""Seconds for one ``mooring`` command."""


class Daemon:
    """A running daemon and its home."""

    def __init__(
        self,
        home: Path,
        process: asyncio.subprocess.Process,
        mooring: Mooring,
        endpoint: str,
        program: str = sys.executable,
    ) -> None:
        self.home = home
        self._program = program
        self.process = process
        self.mooring = mooring
        self.endpoint = endpoint
        self._keys: dict[str, str] = {}

    @property
    def env(self) -> dict[str, str]:
        """The environment in which ``mooring`` means this daemon."""
        return {**os.environ, "MOORING_HOME": str(self.home)}

    @property
    def output(self) -> str:
        """All it has logged so far."""
        return (self.home / "output.txt").read_text("utf-8", "replace")

    async def key(self, workspace: str) -> str:
        """A key for a workspace, made once."""
        if workspace not in self._keys:
            self._keys[workspace] = (await self.mooring.key_create(workspace)).key
        return self._keys[workspace]

    async def client(self, workspace: str, era: Era = "legacy", **more: Any) -> HttpClient:
        """An HTTP client with a key for this workspace; not opened yet."""
        return HttpClient(self.endpoint, token=await self.key(workspace), era=era, **more)

    async def rows(self, server: str) -> list[InstanceRow]:
        """The lines of ``mooring ps`` for one server."""
        return [row for row in await self.mooring.ps() if row.server == server]

    async def command(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Run ``mooring`` as a user does; exit code, stdout, stderr."""
        process = await asyncio.create_subprocess_exec(
            *(self._program, "-m", "mooring", *arguments),
            env=self.env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(COMMAND):
            out, err = await process.communicate(stdin)
        return process.returncode or 0, out.decode(), err.decode()

    async def ended(self) -> int:
        """Wait, bounded, until the daemon has ended; its exit code."""
        async with asyncio.timeout(READY):
            return await self.process.wait()


def server(*flags: str, **members: Any) -> dict[str, Any]:
    """An ``[mcp_servers.X]`` table for an echo server."""
    command, *args = echo(*flags)
    return {"command": command, "args": args, **members}


def write_config(
    file: Path,
    servers: dict[str, Any],
    workspaces: dict[str, Any] | None = None,
    gateway: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    """Write a configuration atomically, as editors do; without ``workspaces`` there is one, "w", with all servers."""
    import tomlkit

    data = {
        "gateway": {"listen": ["127.0.0.1:0"], **(gateway or {})},
        "mcp_servers": servers,
        "workspaces": workspaces or {"w": {"mcp_servers": ["*"]}},
        **more,
    }
    temporary = file.with_suffix(".tmp")
    temporary.write_text(tomlkit.dumps(data))
    temporary.replace(file)


@asynccontextmanager
async def daemon(
    home: Path,
    servers: dict[str, Any],
    workspaces: dict[str, Any] | None = None,
    gateway: dict[str, Any] | None = None,
    **more: Any,
) -> AsyncGenerator[Daemon]:
    """A daemon with this configuration in ``home``, a folder that is there."""
    write_config(home / "mooring.toml", servers, workspaces, gateway, **more)
    async with launched(home) as running:
        yield running


@asynccontextmanager
async def launched(home: Path, program: str = sys.executable) -> AsyncGenerator[Daemon]:
    """A daemon with whatever is in ``home``, run by the interpreter ``program``."""
    async with AsyncExitStack() as stack:
        process = await _up(home, program)
        stack.push_async_callback(_end, process)
        place = Home.locate({"MOORING_HOME": str(home)})

        def listening() -> bool:
            if process.returncode is not None:
                raise AssertionError((home / "output.txt").read_text("utf-8", "replace"))
            return _listens(place.socket)

        await wait_for(listening, READY)
        mooring = Mooring(await stack.enter_async_context(connected(place)))
        yield Daemon(home, process, mooring, (await mooring.status()).endpoint, program)


def _listens(path: str) -> bool:
    """Whether somebody answers at a socket: a daemon that was killed leaves its own behind."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


async def _up(home: Path, program: str) -> asyncio.subprocess.Process:
    with (home / "output.txt").open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *(program, "-m", "mooring", "up"),
            env={**os.environ, "MOORING_HOME": str(home)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,  # nobody reads it, hence no first key is made
            stderr=output,
        )


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(READY):
                await process.wait()
        except TimeoutError:
            process.kill()
            raise
