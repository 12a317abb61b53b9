"""The official SDK's client against the front, in both eras."""

from __future__ import annotations

import asyncio

import pytest
from test_wire_http_kit import LIMIT, MODERN, serving


def anyone(authorization, workspace, variant, peer):
    from mooring.nouns import Principal

    return Principal(key_id="local:test", workspace="default")


@pytest.mark.parametrize(("mode", "era"), [("legacy", "legacy"), ("auto", "modern"), (MODERN, "modern")])
async def test_the_sdk_client_lists_calls_and_hears_progress(mode, era):
    from mcp import Client

    heard = []

    async def progress(done, total, text) -> None:
        heard.append(done)

    async with asyncio.timeout(LIMIT), serving(login=anyone) as served:
        async with Client(f"http://127.0.0.1:{served.port}/mcp", mode=mode) as client:
            tools = await client.list_tools()
            assert [tool.name for tool in tools.tools] == ["echo", "progress"]
            assert (await client.call_tool("echo", {})).content[0].text == "echo"
            assert (await client.call_tool("progress", {}, progress_callback=progress)).content[0].text == "progress"
        assert heard == [1, 2]
        assert {request.era for request in served.relay.requests if request.method == "tools/call"} == {era}
