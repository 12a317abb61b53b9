"""A server that says, sends and does what no revision knows, and the clients that understand it."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mooring.testing import HttpClient, StdioClient
from mooring.testing.daemon import Daemon, server
from mooring.testing.speech import Era

Start = Callable[..., Awaitable[Daemon]]
Client = HttpClient | StdioClient

VENDOR = r"""
import json, sys

era = sys.argv[1]
META = "io.modelcontextprotocol/"
told, polls, sent = [], 0, []

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def listen():
    message = json.loads(sys.stdin.readline())
    sent.append(message)
    return message

CAPABILITIES = {
    "tools": {},
    "extensions": {META + "tasks": {}, "vendor/x": {"deep": [1e2, None]}},
    "experimental": {"vendor/old": {"n": 123456789012345678901234567890}},
    "vendor": ["kept"],
}
TOOL = {"name": "do", "inputSchema": {"type": "object", "x-vendor": {"$ref": "#"}}, "x-vendor": [None, 1.10]}
ODD = {"type": "vendor/new", "payload": [1e2, "\ud800"], "deep": {"a": [{}]}}
CONTENT = [ODD, {"type": "text", "text": "x", "x": 1}]

def answer(method, params):
    global polls
    if method == "initialize":
        info = {"name": "v", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": info}
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
    if method == "tools/list":
        return {"tools": [TOOL], "ttlMs": 60000, "cacheScope": "public"}
    if method == "tools/call":
        does = params["arguments"].get("does")
        if does == "task":
            handle = {"taskId": "task-7f3a", "status": "working", "x-vendor": {"kept": True}}
            return {"resultType": "task", **handle} if era == "modern" else {"task": handle, "x-vendor": 1}
        if does == "tell":
            say(method="notifications/vendor/said", params={"x-vendor": [1e2, None], "_meta": {"v/t": "1"}})
        if does == "ask":
            say(id="vendor-1", method="vendor/ask", params={"what": ["?"]})
            return {"content": [], "answered": listen()["result"]}
        if does == "type":
            return {"resultType": "vendor/else", "anything": {"goes": [True]}}
        more = {"x-vendor": params, "_meta": {"vendor/m": [1]}}
        return {"content": CONTENT, "structuredContent": [1, {"a": None}], **more}
    if method == "tasks/get":
        polls += 1
        return {"taskId": params["taskId"], "status": "completed", "result": {"content": CONTENT}, "polls": polls}
    return {"method": method, "params": params, "sent": [message["method"] for message in sent]}

while True:
    message = listen()
    if "id" in message:
        if message["method"] == {"modern": "initialize", "legacy": "server/discover"}[era]:
            say(id=message["id"], error={"code": -32022 if era == "modern" else -32601, "message": "no",
                "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"}})
            continue
        if message["method"] == "vendor/fails":
            say(id=message["id"], error={"code": -39999, "message": "vendor", "data": [{"x": 1}], "x-vendor": "kept"})
            continue
        result = answer(message["method"], message.get("params", {}))
        say(id=message["id"], result={"resultType": "complete", **result} if era == "modern" else result)
"""


def vendor(era: Era, **members: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", VENDOR, era], **members}


@asynccontextmanager
async def opened(running: Daemon, workspace: str, era: Era, front: str) -> AsyncGenerator[Client]:
    if front == "http":
        async with await running.client(workspace, era) as client:
            yield client
    else:
        command = [sys.executable, "-m", "mooring", "stdio", "-w", workspace]
        async with StdioClient(command, era=era, env=running.env) as client:
            yield client


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


@pytest.fixture(params=["http", "stdio"])
def front(request: pytest.FixtureRequest) -> str:
    return request.param


ALONE = {"w": {"mcp_servers": ["v"], "prefix": ""}}
DIRECT = [sys.executable, "-c", VENDOR]


async def conversation(client: Client) -> dict[str, Any]:
    """All that a client gets to see of the server."""
    hello = await client.open()
    listed = await client.result("tools/list")
    seen: dict[str, Any] = {
        "capabilities": {name: hello["capabilities"].get(name) for name in ("extensions", "experimental", "vendor")},
        "tools": listed["tools"],
    }
    meta = {"vendor/trace": "abc", "traceparent": "00-1-2-3"}
    for does in ("", "task", "tell", "type"):
        params = {"name": "do", "arguments": {"does": does}, "x-vendor": {"param": [1]}, "_meta": meta}
        seen[f"call {does}"] = await client.request("tools/call", params)
    for method, params in (
        ("vendor/method", {"n": 2**70, "_meta": meta}),
        ("vendor/fails", {}),
        ("tasks/get", {"taskId": "task-7f3a"}),
        ("tasks/update", {"taskId": "task-7f3a", "inputResponses": {"a": {"action": "accept"}}}),
        ("tasks/cancel", {"taskId": "task-7f3a"}),
    ):
        seen[method] = await client.request(method, params)
    await client.heard("notifications/vendor/said")
    seen["notes"] = [note for note in client.notifications if "vendor" in note["method"]]
    return seen


def without(value: Any, *names: str) -> Any:
    """A value without the members that belong to each conversation: ids, the handshake that came before."""
    if isinstance(value, dict):
        return {key: without(each, *names) for key, each in value.items() if key not in names}
    return [without(each, *names) for each in value] if isinstance(value, list) else value


async def test_what_nobody_knows_arrives_as_it_was_sent(start: Start, era: Era, front: str) -> None:
    """R27, A17: fields, content types, result types, capabilities, methods, notifications, errors, task handles; the
    client sees what it would see of the server itself."""
    running = await start({"v": vendor(era)}, ALONE)
    async with StdioClient([*DIRECT, era], era=era) as direct:
        expected = await conversation(direct)
    async with await running.client("w", "modern") as first:
        await first.result("tools/list")  # a greeting does not wait for a server's first listing
    async with opened(running, "w", era, front) as client:
        seen = await conversation(client)
    assert without(seen, "id", "sent") == without(expected, "id", "sent")
    for method in ("vendor/method", "tasks/get", "call task"):
        assert "result" in seen[method], seen[method]


async def test_what_a_legacy_server_asks_that_nobody_knows_is_asked(start: Start, front: str) -> None:
    running = await start({"v": vendor("legacy")}, ALONE)
    async with opened(running, "w", "legacy", front) as client:
        await client.open()
        client.answers["vendor/ask"] = {"yes": [1, None]}
        answered = await client.result("tools/call", {"name": "do", "arguments": {"does": "ask"}})
        assert answered["answered"] == {"yes": [1, None]}
        assert [each["method"] for each in client.asked] == ["vendor/ask"]


async def test_notifications_of_a_client_reach_the_servers_that_are_its_own(start: Start, front: str) -> None:
    """Among them that its roots changed."""
    running = await start({"v": vendor("legacy", dialogue="session")}, ALONE)
    async with opened(running, "w", "legacy", front) as client:
        await client.open()
        await client.result("tools/call", {"name": "do", "arguments": {}})
        for method in ("notifications/roots/list_changed", "notifications/vendor/x"):
            told = client.notify(method)
            assert told is None or await told == 202
        sent = (await client.result("vendor/method"))["sent"]
        assert sent[-3:-1] == ["notifications/roots/list_changed", "notifications/vendor/x"]


async def test_a_task_is_asked_for_at_the_server_that_handed_it_out(start: Start) -> None:
    """A17: one of several, known by the handle, which is worth nothing to another key. An unknown method has nowhere to
    go then."""
    servers = {"v": vendor("modern"), "other": server(), "more": vendor("modern")}
    running = await start(servers, {"w": {"mcp_servers": ["v", "other", "more"]}})
    other = (await running.mooring.key_create("w", name="other")).key
    task = {"taskId": "task-7f3a"}
    async with (
        await running.client("w", "modern") as client,
        HttpClient(running.endpoint, token=other, era="modern") as stranger,
    ):
        await client.result("tools/list")
        assert (await client.request("tasks/get", task))["error"]["code"] == -32602
        await client.result("tools/call", {"name": "v_do", "arguments": {"does": "task"}})
        assert [(await client.result("tasks/get", task))["polls"] for _ in range(2)] == [1, 2]
        assert (await client.request("tasks/get", task, {"Mcp-Name": "another"}))["error"]["code"] == -32020
        assert "result" in await client.request("tasks/get", task, {"Mcp-Name": "task-7f3a"})
        assert (await stranger.request("tasks/get", task))["error"]["code"] == -32602
        await client.result("tools/call", {"name": "more_do", "arguments": {"does": "task"}})
        assert (await client.result("tasks/get", task))["polls"] == 1  # the newest counts
        assert (await client.request("vendor/method"))["error"]["code"] == -32601
        assert client.replies[-1].status == 404
        assert (await client.request("tasks/list"))["error"]["code"] == -32601


async def test_no_filter_is_got_around_by_a_method_that_nobody_knows(start: Start) -> None:
    """Invariant 5."""
    servers = {"v": vendor("modern", tools={"deny": ["x"]}), "free": vendor("modern")}
    running = await start(servers, {"w": {"mcp_servers": ["v"]}, "f": {"mcp_servers": ["free"]}})
    some = (await running.mooring.key_create("f", name="some", tools=["free_do"])).key
    async with (
        await running.client("w", "modern") as filtered,
        await running.client("f", "modern") as free,
        HttpClient(running.endpoint, token=some, era="modern") as restricted,
    ):
        for client, allowed in ((filtered, False), (restricted, False), (free, True)):
            await client.result("tools/list")
            assert ("result" in await client.request("vendor/method")) is allowed
