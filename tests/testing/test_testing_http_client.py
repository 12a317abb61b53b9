"""The HTTP client of the test kit and its connections."""

from __future__ import annotations

import asyncio

from mooring.testing import wait_for
from mooring.testing.http_client import HttpClient

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used_again() -> None:
    served: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        while (await reader.read(65536)).endswith(b"{}"):
            writer.write(ANSWER)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with HttpClient(f"http://127.0.0.1:{port}/mcp", era="modern") as client:
            for _ in range(2):
                async with client.post(b"{}") as reply:
                    assert await reply.body() == b"{}"
            assert len(served) == 1
            served[0].close()
            (kept,) = client._idle
            await wait_for(lambda: kept.closed)
            async with client.post(b"{}") as reply:
                assert await reply.body() == b"{}"
        assert len(served) == 2
