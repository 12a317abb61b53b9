"""Two workspaces over real HTTP and stdio, with everything guessed right: ids of sessions, events, requests, paths."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.testing.daemon import Daemon, server
from mooring.testing.http_client import HttpClient
from mooring.testing.speech import DIALOGUE
from mooring.testing.stdio_client import StdioClient
from mooring.wire.http_front import endpoint

Start = Callable[..., Awaitable[Daemon]]
ROOMS = {"a": {"mcp_servers": ["shared", "mine"]}, "b": {"mcp_servers": ["shared"]}}


async def stage(start: Start) -> Daemon:
    return await start({"shared": server(), "mine": server(dialogue="session")}, ROOMS)


async def status(client: HttpClient, method: str, message: dict[str, Any] | None, **headers: str) -> int:
    body = b"" if message is None else json.dumps({"jsonrpc": "2.0", **message}).encode()
    usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    async with client.exchange(method, body, {**usual, **client._own_headers(), **headers}) as reply:
        await reply.body()
        return reply.status


async def test_a_session_id_in_strange_hands_is_worth_nothing(start: Start) -> None:
    """R19: call, listen, resume, answer, cancel, end: 404 each time, and the owner's session goes on."""
    daemon = await stage(start)
    async with await daemon.client("a", capabilities=DIALOGUE) as owner, await daemon.client("b") as stranger:
        await owner.open()
        await stranger.open()
        assert owner.session is not None
        slow = asyncio.create_task(owner.call("mine_sleep", {"seconds": 1.5}))
        guessed = {"Mcp-Session-Id": owner.session}
        call = {"id": 9, "method": "tools/call", "params": {"name": "mine_pid"}}
        for method, message, more in (
            ("POST", call, {}),
            ("POST", {"id": 1, "result": {"action": "accept"}}, {}),
            ("POST", {"method": "notifications/cancelled", "params": {"requestId": 2}}, {}),
            ("GET", None, {}),
            ("GET", None, {"Last-Event-ID": "1"}),
            ("DELETE", None, {}),
        ):
            assert await status(stranger, method, message, **guessed, **more) == 404
        assert not (await slow).get("isError")
        assert not (await owner.call("mine_pid")).get("isError")
        assert (await stranger.call("mine_pid"))["isError"]


async def test_a_request_id_cancels_only_ones_own(start: Start) -> None:
    daemon = await stage(start)
    async with await daemon.client("a") as owner, await daemon.client("b") as stranger:
        await owner.open()
        await stranger.open()
        slow = asyncio.create_task(owner.call("shared_sleep", {"seconds": 1.0}))
        await asyncio.sleep(0.2)
        for number in range(6):
            assert await stranger.notify("notifications/cancelled", {"requestId": number}) == 202
        assert not (await slow).get("isError")


async def test_the_stdio_of_one_workspace_knows_nothing_of_the_other(start: Start) -> None:
    daemon = await stage(start)
    async with StdioClient(shim("b"), env=daemon.env) as client:
        await client.open()
        names = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        assert names
        assert not any("mine" in name for name in names)
        assert (await client.call("mine_pid"))["isError"]


def shim(workspace: str) -> list[str]:
    return [sys.executable, "-m", "mooring", "stdio", "-w", workspace]


TRICKS = (
    "/w/a/mcp", "/w//mcp", "/w/b/../a/mcp", "/w/b/mcp/../../a/mcp", "/w/%61/mcp", "/w/a%2fmcp", "//w/a/mcp", "/W/a/mcp",
    "/w/a/mcp/", "/w/a/mcp;x", "/w/a\\mcp", "/w/a%00/mcp", "/s/mine/mcp", "/s/shared/mcp", "/s//mcp", "/s/%6dine/mcp",
    "/s/shared/../mine/mcp", "/s/mine/mcp?workspace=b", "/mcp/../s/mine/mcp", "/./s/mine/mcp", "/s/mine%2Fmcp",
    "/s/*/mcp",
)  # fmt: skip


async def test_no_path_opens_another_workspace(start: Start) -> None:
    """R24: what a path cannot open it answers with 400, 403 or 404, and a well-formed body."""
    daemon = await stage(start)
    token = await daemon.key("b")
    where = urlsplit(daemon.endpoint)
    init = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": init}).encode()
    for path in TRICKS:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        head = f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
        head += f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        assert answer.split()[1] in (b"400", b"403", b"404"), (path, answer)
        assert b"Mcp-Session-Id" not in answer
        assert b"mine" not in answer.partition(b"\r\n\r\n")[2]


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from(["/", "w", "s", "mcp", "a", "..", ".", "%2f", "%61", "\\", ";", "?", "", "\0"]), max_size=9
    )
)
def test_a_path_names_one_thing_or_nothing(parts: list[str]) -> None:
    path = "".join(parts)
    named = endpoint(path)
    if named is None or named == (None, None):
        assert (named is None) is (path != "/mcp")
    else:
        kind, name = ("w", named[0]) if named[0] is not None else ("s", named[1])
        assert path == f"/{kind}/{name}/mcp"
        assert name
        assert "/" not in name
