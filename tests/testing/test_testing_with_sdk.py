"""The kit and the MCP SDK understand each other: the SDK's client with the echo server, the raw HTTP client with the
SDK's server."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager

import mcp_types as types
import pytest
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from mooring.testing import HttpClient, echo
from mooring.testing.speech import DIALOGUE


async def elicited(context, params) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "sdk"})


@pytest.mark.parametrize(
    ("server", "mode"), [("legacy", "legacy"), ("modern", "auto"), ("legacy", "auto"), ("dual", "auto")]
)
async def test_the_sdk_client_uses_the_echo_server(server, mode):
    argv = echo("--era", server, "--page-size", "5")
    target = StdioServerParameters(command=argv[0], args=argv[1:])
    async with asyncio.timeout(30), Client(target, mode=mode, elicitation_callback=elicited) as client:
        expected = "2025-11-25" if "legacy" in (server, mode) else "2026-07-28"
        assert client.protocol_version == expected
        assert client.server_info.name == "echo"
        assert len((await client.list_tools()).tools) == 5
        result = await client.call_tool("echo", {"text": "hi"})
        assert result.structured_content == {"text": "hi"}
        asked = await client.call_tool("elicit", {})
        assert asked.structured_content["content"] == {"name": "sdk"}
        read = await client.read_resource("test://static-text")
        assert read.contents[0].text == "a static text"
        seen: list[float] = []

        async def progress(done, total, message):
            seen.append(done)

        await client.call_tool("sleep", {"seconds": 0.05}, progress_callback=progress)
        assert seen == [1, 2, 3, 4]


class Name(BaseModel):
    name: str


@asynccontextmanager
async def sdk_server():
    """An SDK server over Streamable HTTP on a free port; yields its URL."""
    server = MCPServer("sdk")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def steps(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        await ctx.report_progress(2, 2)
        return "done"

    @server.tool()
    async def who(ctx: Context) -> str:
        answer = await ctx.elicit("who?", Name)
        return answer.data.name

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    app = server.streamable_http_app()
    http = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
    task = asyncio.create_task(http.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        http.should_exit = True
        http.force_exit = True
        await asyncio.wait_for(task, 10)
        listening.close()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_raw_http_client_uses_an_sdk_server(era):
    async with sdk_server() as url, HttpClient(url, era=era, capabilities=DIALOGUE) as client:
        await client.open()
        assert (client.session is None) is (era == "modern")
        assert len((await client.result("tools/list"))["tools"]) == 3
        assert (await client.call("add", {"a": 2, "b": 3}))["structuredContent"] == {"result": 5}
        await client.call("steps", _meta={"progressToken": 7})
        assert (await client.heard("notifications/progress", lambda note: note["progress"] == 2))["progressToken"] == 7
        assert client.replies[-1].raw.startswith(b"HTTP/1.1 200")
        both = await asyncio.gather(client.call("add", {"a": 1, "b": 1}), client.call("add", {"a": 2, "b": 2}))
        assert [result["structuredContent"]["result"] for result in both] == [2, 4]
        if era == "legacy":
            assert (await client.call("who"))["structuredContent"] == {"result": "octocat"}
            assert client.asked[0]["method"] == "elicitation/create"
            async with client.listening() as stream:
                assert stream.status == 200
            assert await client.delete() == 200


async def test_the_raw_http_client_sends_any_bytes():
    async with sdk_server() as url, HttpClient(url) as client:
        async with client.post(b"not json") as reply:
            assert reply.status == 400
            assert b"error" in await reply.body()
        async with client.exchange("PUT", b"x", {"X-Odd": "1"}) as reply:
            assert reply.status == 405
