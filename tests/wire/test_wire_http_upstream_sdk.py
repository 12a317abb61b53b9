"""Conversations with the MCP SDK's own server over HTTP, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mooring.launch.base import Url
from mooring.launch.http_process import free_port
from mooring.nouns import Era
from mooring.wire.connection import Connection
from mooring.wire.eras import to_modern_params
from mooring.wire.jsonrpc import Answer
from mooring.wire.remote_upstream import Terms, connect

LIMIT = 60.0
"""Seconds; the SDK takes some to import on a busy machine."""

SERVER = """
import asyncio, sys
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

app = MCPServer("sdk", instructions="be kind")

class Name(BaseModel):
    name: str

@app.tool()
def add(a: int, b: int) -> int:
    return a + b

@app.tool()
async def count(ctx: Context, to: int) -> str:
    for n in range(to):
        await ctx.report_progress(n + 1, to)
        await asyncio.sleep(0)
    return "done"

@app.tool()
async def who(ctx: Context) -> str:
    answer = await ctx.elicit("who?", Name)
    return answer.data.name

app.run(sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]), **({"json_response": True} if "json" in sys.argv else {}))
"""


class Ear:
    def __init__(self) -> None:
        self.alone = False
        self.headers: dict[str, str] = {}
        self.said: list[tuple[str, Any]] = []

    def heard(self, method: str, params: bytes) -> None:
        self.said.append((method, json.loads(params)))

    announced = heard

    async def ask(self, method: str, params: bytes) -> Answer:
        self.said.append((method, json.loads(params)))
        return Answer(result=b'{"action":"accept","content":{"name":"Ann"}}')

    asked = ask


@asynccontextmanager
async def serving(*args: str) -> AsyncIterator[int]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-c", SERVER, args[0], str(port), *args[1:]),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        process.kill()
        await process.wait()


async def ask(connection: Connection, method: str, params: dict[str, Any], caller: Ear | None = None) -> Any:
    raw = json.dumps(params).encode()
    if connection.facts.era == "modern":
        raw = to_modern_params(raw, version="2026-07-28", capabilities=b"{}", client_info=b"{}")
    answer = await connection.request(method, raw, caller)
    assert answer.error is None, answer.error
    return json.loads(answer.result or b"")


@pytest.mark.parametrize(
    ("transport", "era", "version"),
    [
        (["streamable-http"], None, "2026-07-28"),
        (["streamable-http", "json"], None, "2026-07-28"),
        (["streamable-http"], "legacy", "2025-11-25"),
        (["streamable-http", "json"], "legacy", "2025-11-25"),
        (["sse"], None, "2025-11-25"),
    ],
)
async def test_the_sdks_server_is_spoken_with(transport: list[str], era: Era | None, version: str) -> None:
    """R10, R27, A15: from the moment it starts; calls side by side, progress, dialogue, both eras and HTTP+SSE."""
    exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    path = "/sse" if transport == ["sse"] else "/mcp"
    async with asyncio.timeout(LIMIT), serving(*transport) as port:
        terms = Terms(*("sdk", exited, Ear(), b'{"elicitation":{}}', LIMIT, lambda step: None), era=era, starting=True)
        async with connect(Url(f"http://localhost:{port}{path}"), terms) as connection:
            assert connection.facts.version == version
            assert connection.facts.instructions == "be kind"
            tools = await ask(connection, "tools/list", {})
            assert {tool["name"] for tool in tools["tools"]} == {"add", "count", "who"}
            added = await asyncio.gather(
                *(ask(connection, "tools/call", {"name": "add", "arguments": {"a": n, "b": 1}}) for n in range(20))
            )
            assert [each["structuredContent"]["result"] for each in added] == list(range(1, 21))
            caller = Ear()
            params = {"name": "count", "arguments": {"to": 3}, "_meta": {"progressToken": "mine"}}
            await ask(connection, "tools/call", params, caller)
            if "json" not in transport:  # then there is no stream for it
                assert [said["progress"] for _, said in caller.said] == [1, 2, 3]
                assert {said["progressToken"] for _, said in caller.said} == {"mine"}
            if version == "2025-11-25" and "json" not in transport:
                named = await ask(connection, "tools/call", {"name": "who", "arguments": {}}, caller)
                assert named["structuredContent"]["result"] == "Ann"
                assert caller.said[-1][0] == "elicitation/create"
