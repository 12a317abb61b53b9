"""A container with a list of what it may reach reaches that, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from container_kit import LIMIT, Kept, Table, called

from mooring.testing import wait_for
from mooring.testing.daemon import Daemon

LOOK = """
import http.client, socket
def connect(host, port):
    try: socket.create_connection((host, port), 2); return "connected"
    except OSError as error: return type(error).__name__
def tunnel(port):
    way = http.client.HTTPConnection("127.0.0.1", PROXY, timeout=30)
    way.set_tunnel("127.0.0.1", port)
    try: way.request("GET", "/"); return way.getresponse().read().decode()
    except OSError as error: return str(error)
def plain(port):
    way = http.client.HTTPConnection("127.0.0.1", PROXY, timeout=30)
    way.request("GET", f"http://127.0.0.1:{port}/")
    return way.getresponse().status
found = [tunnel(ALLOWED), tunnel(OTHER), plain(ALLOWED), plain(OTHER), connect("127.0.0.1", ALLOWED),
         connect("172.17.0.1", ALLOWED), connect("10.88.0.1", ALLOWED), connect("example.com", 80)]
"""


@asynccontextmanager
async def web() -> AsyncIterator[int]:
    """A web server of this machine, on all its addresses."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def looked(daemon: Daemon, server: str, allowed: int, other: int, proxy: int) -> list[Any]:
    code = f"ALLOWED, OTHER, PROXY = {allowed}, {other}, {proxy}\n{LOOK}"
    return (await called(daemon, f"{server}_look", code=code))["found"]


async def test_it_reaches_the_list_and_nothing_else(kept: Kept, tmp_path: Path, probe: Table) -> None:
    """R25: on stdio and over HTTP, tunnels and plain requests; no name, no host, no other port; denials are told."""
    async with web() as allowed, web() as other:
        network = [f"127.0.0.1:{allowed}"]
        servers = {
            "pipe": probe(network=network),
            "port": probe("--port", "3128", port=3128, network=network),  # where the proxy would be
        }
        async with kept.daemon(tmp_path / "home", servers) as daemon:
            for server, proxy in (("pipe", 3128), ("port", 3129)):
                found = await looked(daemon, server, allowed, other, proxy)
                assert found[0] == "hello"
                assert "403" in found[1]
                assert found[2:4] == [200, 403]
                assert "connected" not in found[4:]

                async def told(server: str = server) -> bool:
                    (row,) = await daemon.rows(server)
                    return row.denied == (f"127.0.0.1:{other}",)

                await wait_for(told, LIMIT, 0.05)
            assert f"127.0.0.1:{other}" in (await daemon.command("logs", "pipe"))[1]
