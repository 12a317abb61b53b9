"""The runs that are compared: the suite against the server itself, and through a gateway in front of it.

Used by ``tests/conformance``. Each gateway is a real daemon with one workspace, one server and no prefix.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mooring.testing.conformance.results import Results
from mooring.testing.conformance.suite import REVISIONS, Suite
from mooring.testing.daemon import daemon

DIRECT = "direct"
CLIENT = "client"
"""The cell in which the suite is the server: Mooring in front of it, and our client in front of that."""
SAME_ERA = ("stdio", "http")
"""Cells in which the server speaks both eras: nothing may be lost."""
CROSS_ERA = ("stdio-legacy", "stdio-modern", "http-legacy", "http-modern")
"""Cells in which the server is forced to one era."""
CELLS = (*SAME_ERA, *CROSS_ERA)
AT_ONCE = 2
"""Cells measured at the same time: the suite mostly waits."""
PATIENCE = 20.0
"""Seconds the server has to say where it listens, and to end."""

Runs = dict[tuple[str, str], Results]
"""By cell and revision."""

_COMMAND = (sys.executable, "-m", "mooring.testing.conformance")
_OPEN = {"w": {"mcp_servers": ["*"], "prefix": "", "anonymous": "loopback"}}


@asynccontextmanager
async def served(*flags: str) -> AsyncGenerator[str]:
    """The conformance server on HTTP; its address."""
    process = await asyncio.create_subprocess_exec(*_COMMAND, "--http", "0", *flags, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            address = (await process.stdout.readline()).decode().strip()
        yield address
    finally:
        process.kill()
        async with asyncio.timeout(PATIENCE):
            await process.wait()


@asynccontextmanager
async def gateway(cell: str, home: Path) -> AsyncGenerator[str]:
    """A gateway in front of the conformance server; its address."""
    transport, _, era = cell.partition("-")
    flags = ("--era", era) if era else ()
    if transport == "stdio":
        command, *args = (*_COMMAND, *flags)
        server: dict[str, Any] = {"command": command, "args": args, "dialogue": "session"}
        async with daemon(home, {"conformance": server}, _OPEN) as running:
            yield running.endpoint
    else:
        async with served(*flags) as url, daemon(home, {"conformance": {"url": url}}, _OPEN) as running:
            yield running.endpoint


async def measure_client(suite: Suite, driver: Path, folder: Path) -> Runs:
    """The runs of the client half; ``driver`` is the program that puts a gateway in front of the suite's server; it
    is also told a folder that is common to all its runs."""
    place = folder / CLIENT
    place.mkdir()
    command = (sys.executable, str(driver), str(place))
    return {(CLIENT, each): await suite.run_client(command, each, place / each) for each in REVISIONS}


async def measure(suite: Suite, folder: Path) -> Runs:
    """All runs of the server half; ``folder`` gets the homes of the gateways and what the suite writes."""
    async with served() as url:
        runs = {
            (DIRECT, revision): await suite.run(url, revision, folder / DIRECT / revision) for revision in REVISIONS
        }
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(cell: str) -> None:
        home = folder / cell
        home.mkdir()
        async with gate, gateway(cell, home) as url:
            for revision in REVISIONS:
                runs[cell, revision] = await suite.run(url, revision, home / "results" / revision)

    async with asyncio.TaskGroup() as group:
        for cell in CELLS:
            group.create_task(one(cell))
    return runs
