"""Every feature, between clients and servers of both eras, over every transport: one table, one test for each cell.

``python tests/matrix/test_matrix.py`` runs all cells and writes ``docs/matrix.md``; a test compares that page with what
the table promises.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from features import FEATURES, LIMIT

from mooring.testing import echo
from mooring.testing.daemon import Daemon, daemon, server
from mooring.testing.speech import DIALOGUE, Era

pytestmark = pytest.mark.timeout(90)

Transport = Literal["stdio", "HTTP", "SSE"]
ERAS: tuple[Era, ...] = ("legacy", "modern")
TRANSPORTS: tuple[Transport, ...] = ("stdio", "HTTP", "SSE")
FLAGS = ("--changing", "--tools", "20", "--page-size", "7")
DIALOGUES = ("elicit", "sample", "roots")
PAGE = Path(__file__).parent.parent.parent / "docs" / "matrix.md"

IMPOSSIBLE: dict[tuple[Era, Transport], str] = {
    ("modern", "SSE"): "The HTTP+SSE transport belongs to protocol version 2024-11-05; a modern server has none.",
}
"""Servers that cannot be, and why."""


class Cell(msgspec.Struct, frozen=True):
    """One combination."""

    client: Era
    served: Era
    transport: Transport
    feature: str

    @property
    def workspace(self) -> str:
        """Where its server is: a process asks its client only if that has it to itself; and for a while after a call
        was cancelled, a server that has one stream for everything is heard by nobody."""
        asks = self.transport == "stdio" and self.feature in DIALOGUES
        suffix = "-own" if asks else "-cancel" if self.feature == "cancel" else ""
        return f"{self.served}-{self.transport.lower()}{suffix}"

    @property
    def shown(self) -> str:
        """What the page says of it."""
        if (self.served, self.transport) in IMPOSSIBLE:
            return "-"
        return "yes" if self.client == self.served else "translated"

    def __str__(self) -> str:
        return f"{self.client} client, {self.served} server, {self.transport}, {self.feature}"


CELLS = [
    Cell(client, served, transport, feature)
    for transport in TRANSPORTS
    for served in ERAS
    for client in ERAS
    for feature in FEATURES
]
POSSIBLE = [cell for cell in CELLS if cell.shown != "-"]


@asynccontextmanager
async def listening(*flags: str) -> AsyncGenerator[str]:
    """An echo server on HTTP; its URL."""
    process = await asyncio.create_subprocess_exec(*echo(*flags), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(LIMIT):
            url = await process.stdout.readline()
        yield url.decode().strip()
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def running(home: Path) -> AsyncGenerator[Daemon]:
    """One daemon with every server there can be, each alone in a workspace of its name."""
    async with AsyncExitStack() as stack:
        servers: dict[str, Any] = {}
        for era in ERAS:
            servers[f"{era}-stdio"] = servers[f"{era}-stdio-cancel"] = server("--era", era, *FLAGS)
            servers[f"{era}-stdio-own"] = server("--era", era, dialogue="session")
            for name in (f"{era}-http", f"{era}-http-cancel"):  # the echo server has one client
                url = await stack.enter_async_context(listening("--era", era, "--http", "0", *FLAGS))
                servers[name] = {"url": url}
        url = await stack.enter_async_context(listening("--era", "legacy", "--sse", "0", *FLAGS))
        servers["legacy-sse"] = servers["legacy-sse-cancel"] = {"url": url, "transport": "sse"}
        workspaces = {name: {"mcp_servers": [name], "prefix": ""} for name in servers}
        yield await stack.enter_async_context(daemon(home, servers, workspaces))


async def check(gateway: Daemon, cell: Cell) -> None:
    """Do what the feature means; raises when it does not hold."""
    capabilities = DIALOGUE if cell.feature in DIALOGUES else {}
    client = await gateway.client(cell.workspace, cell.client, capabilities=capabilities, timeout=LIMIT)
    async with client:
        await client.open()
        await client.result("tools/list")
        await FEATURES[cell.feature](client)


def page() -> str:
    """The page, as the table has it."""
    columns = [(served, transport, client) for transport in TRANSPORTS for served in ERAS for client in ERAS]
    columns = [each for each in columns if each[:2] not in IMPOSSIBLE]
    rows = [
        "| feature |" + "".join(f" {client} client, {served} {transport} |" for served, transport, client in columns),
        "| --- |" + " --- |" * len(columns),
    ]
    for feature in FEATURES:
        shown = [Cell(client, served, transport, feature).shown for served, transport, client in columns]
        rows.append(f"| {feature} | {' | '.join(shown)} |")
    meanings = [f"- **{name}**: {run.__doc__}" for name, run in FEATURES.items()]
    reasons = [f"- {era} server over {transport}: {why}" for (era, transport), why in IMPOSSIBLE.items()]
    return "\n".join((_HEAD, *rows, "", _MEANING, *meanings, "", "## What cannot be", "", *reasons, ""))


_HEAD = """\
# Every client with every server

What works between clients and servers of both eras through Mooring. The transport is that of the server; the clients
are on HTTP. Each cell is a test with a real daemon, a real server and a client that is nothing but the protocol:
`tests/matrix`. The page is written by `python tests/matrix/test_matrix.py`, which runs them all.

*yes*: both speak the same era, and messages pass as they are. *translated*: they have no era in common; what the
client sees is the same.
"""
_MEANING = """\
## What is tested

Elicitation, sampling and roots of a server on stdio need `dialogue = "session"`, since a process that several clients
share cannot ask one of them; the other features are tested with a shared one.
"""


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Daemon]:
    async with running(tmp_path_factory.mktemp("matrix")) as made:
        yield made


@pytest.mark.parametrize("cell", POSSIBLE, ids=str)
async def test_the_feature_works(gateway: Daemon, cell: Cell) -> None:
    """R27, A15, A16, A18"""
    await check(gateway, cell)


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text("utf-8") == page(), f"run: python {Path(__file__).name}"


async def main() -> None:
    """Run every cell, say which fail, and write the page if none does."""
    with tempfile.TemporaryDirectory() as home:
        async with running(Path(home)) as made:
            failed: list[str] = []
            for cell in POSSIBLE:
                try:
                    await check(made, cell)
                except (AssertionError, ConnectionError, TimeoutError) as error:
                    failed.append(f"{cell}: {type(error).__name__} {error}")
    if failed:
        sys.exit("\n".join(failed))
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
