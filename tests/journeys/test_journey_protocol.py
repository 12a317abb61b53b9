"""What goes through the daemon arrives as it was sent, at the right one, and at nobody else."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal

import pytest

from cancelling import cancelled
from mooring.testing import HttpClient, StdioClient, echo, wait_for
from mooring.testing.daemon import Daemon, server, write_config
from mooring.testing.speech import DIALOGUE, NEWEST, Era, modern
from mooring.wire import jsonrpc

Start = Callable[..., Awaitable[Daemon]]
Front = Literal["http", "stdio"]
ALONE = {"w": {"mcp_servers": ["echo"], "prefix": ""}}
"""A workspace where names pass unchanged."""


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


@pytest.fixture(params=["http", "stdio"])
def front(request: pytest.FixtureRequest) -> Front:
    return request.param


@asynccontextmanager
async def opened(running: Daemon, workspace: str, era: Era, front: Front) -> AsyncGenerator[HttpClient | StdioClient]:
    """A raw client that has said hello through one of the two fronts."""
    if front == "http":
        client: HttpClient | StdioClient = await running.client(workspace, era)
    else:
        shim = [sys.executable, "-m", "mooring", "stdio", "-w", workspace]
        client = StdioClient(shim, era=era, env=running.env)
    async with client:
        await client.open()
        yield client


async def raw(
    client: HttpClient | StdioClient, method: str, params: dict[str, Any], arguments: str = ""
) -> jsonrpc.Answer:
    """One request, its arguments exactly as written; the payload of its answer exactly as received."""
    params = modern(params, NEWEST["modern"], client.capabilities) if client.era == "modern" else params
    text = json.dumps(params)
    if arguments:
        text = f'{text[:-1]},"arguments":{arguments}}}'
    frame = f'{{"jsonrpc":"2.0","id":"raw","method":"{method}","params":{text}}}'.encode()
    async with asyncio.timeout(20):
        if isinstance(client, HttpClient):
            headers = {"Mcp-Method": method} if client.era == "modern" else {}
            if client.era == "modern" and (name := params.get("name") or params.get("uri")):
                headers["Mcp-Name"] = name
            async with client.post(frame, headers) as reply:
                body = await reply.body()
        else:
            seen = len(client.received)
            client.send(frame)
            await wait_for(lambda: [line for line in client.received[seen:] if b'"id":"raw"' in line[:200]], 20)
            body = next(line for line in client.received[seen:] if b'"id":"raw"' in line[:200])
    message = jsonrpc.members(body)
    result, error = message.get("result"), message.get("error")
    return jsonrpc.Answer(None if result is None else bytes(result), None if error is None else bytes(error))


ARGUMENTS = (
    "{}",
    '{"nested":{"deep":[[[{"a":null}]]],"b":[true,false,null,""]}}',
    '{"i64":9223372036854775807,"u64":18446744073709551615,"low":-9223372036854775808}',
    '{"long":123456789012345678901234567890,"exact":1.10,"exponent":1E400,"tiny":-0.0}',
    '{"surrogate":"\\ud800","pair":"\\ud83d\\ude00","plain":"\u00e9\u4e2d","zero":"\\u0000"}',
    '{"twice":1,"twice":2,"":0}',
    '{ "spaces" : [ 1 ,\t2 ] }',
    '[1,{"a":2}]',
)


async def test_payloads_pass_unchanged(start: Start, era: Era, front: Front) -> None:
    """R27, A17: vendor fields, unknown content, long integers, lone surrogates, list results, isError, errors: the same
    bytes as from the server itself; arguments reach the server byte for byte."""
    running = await start({"echo": server("--era", era)}, ALONE)
    async with StdioClient(echo("--era", era), era=era) as direct, opened(running, "w", era, front) as client:
        await direct.open()
        for tool in ("vendor", "error", "rpc_error", "link"):
            params: dict[str, Any] = {"name": tool}
            assert await raw(client, "tools/call", params) == await raw(direct, "tools/call", params)
        for arguments in ARGUMENTS:
            answer = await raw(client, "tools/call", {"name": "echo"}, arguments)
            assert answer == await raw(direct, "tools/call", {"name": "echo"}, arguments)
            assert bytes(jsonrpc.members(answer.result or b"")["structuredContent"]) == arguments.encode()
        for method, params in (
            ("prompts/get", {"name": "greeting", "arguments": {"name": "x"}}),
            ("resources/read", {"uri": "test://static-text"}),
        ):
            assert await raw(client, method, params) == await raw(direct, method, params)


async def test_an_input_round_passes_unchanged(start: Start, front: Front) -> None:
    """R27, A18: what the server asks, its requestState, and the answers of the client, in both directions."""
    running = await start({"echo": server("--era", "modern")}, ALONE)
    async with (
        StdioClient(echo("--era", "modern"), era="modern", capabilities=DIALOGUE) as direct,
        opened(running, "w", "modern", front) as client,
    ):
        client.capabilities = DIALOGUE
        asked = await raw(client, "tools/call", {"name": "elicit"})
        assert asked == await raw(direct, "tools/call", {"name": "elicit"})
        parts = jsonrpc.members(asked.result or b"")
        assert bytes(parts["resultType"]) == b'"input_required"'
        again = {"name": "elicit", "requestState": jsonrpc.string(parts["requestState"])}
        answers = {"elicitation": {"action": "accept", "content": {"name": "\u00e9", "odd": [1, None]}}}
        answered = await raw(client, "tools/call", {**again, "inputResponses": answers})
        assert json.loads(answered.result or b"")["structuredContent"] == answers["elicitation"]
        forged = {**again, "inputResponses": answers, "requestState": "forged"}
        assert (await raw(client, "tools/call", forged)).error is not None


async def test_list_items_pass_unchanged_but_for_their_name(start: Start, era: Era, front: Front) -> None:
    """R35, A17: whatever a definition holds; a prefix changes its name only."""
    workspaces = {**ALONE, "p": {"mcp_servers": ["echo"]}}
    running = await start({"echo": server("--era", era)}, workspaces)

    async def items(client: HttpClient | StdioClient) -> bytes:
        answer = await raw(client, "tools/list", {})
        return bytes(jsonrpc.members(answer.result or b"")["tools"])

    async with StdioClient(echo("--era", era), era=era) as direct:
        await direct.open()
        own = await items(direct)
    assert b'"x-vendor":{"kept":[1,null,123456789012345678901234567890]}' in own
    async with opened(running, "w", era, front) as client:
        assert await items(client) == own
    async with opened(running, "p", era, front) as client:
        assert await items(client) == own.replace(b'{"name":"', b'{"name":"echo_')


async def test_a_huge_result_passes(start: Start, era: Era, front: Front) -> None:
    """R27: ten megabytes, there and back."""
    running = await start({"echo": server("--era", era)}, ALONE)
    async with opened(running, "w", era, front) as client:
        result = await client.call("huge", {"bytes": 10_000_000})
        assert len(result["content"][0]["text"]) == 10_000_000
        text = "y" * 10_000_000
        assert (await client.call("echo", {"text": text}))["structuredContent"] == {"text": text}


async def test_two_thousand_tools_come_in_one_page(start: Start, era: Era) -> None:
    """R27, A16: a server that pages is drained; each name is right and each tool callable."""
    running = await start({"echo": server("--tools", "2000", "--page-size", "90")})
    async with await running.client("w", era) as client:
        await client.open()
        listed = await client.result("tools/list")
        assert "nextCursor" not in listed
        names = [tool["name"] for tool in listed["tools"]]
        assert [f"echo_tool_{number}" for number in range(2000)] == [name for name in names if "_tool_" in name]
        assert len(set(names)) == len(names)
        assert (await client.call("echo_tool_1999", {"a": 1}))["structuredContent"] == {"a": 1}
        assert len((await client.result("resources/list"))["resources"]) == 3


async def test_a_repeated_cursor_is_reported(start: Start) -> None:
    """A16, invariant 9: the list ends there, the tools work, and ps says what is wrong."""
    running = await start({"echo": server("--repeat-cursor")})
    async with await running.client("w") as client:
        await client.open()
        names = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        assert "echo_echo" in names
        assert (await client.call("echo_echo", {"a": 1}))["structuredContent"] == {"a": 1}
    (row,) = await running.rows("echo")
    assert "cursor" in row.unlisted


async def test_parallel_calls_hear_only_their_own_progress(start: Start) -> None:
    """A18: eight callers of both eras and fronts on one process, all with the same progress token."""
    running = await start({"echo": server("--era", "legacy")}, {**ALONE, "v": ALONE["w"]})
    kinds: list[tuple[str, Era, Front]] = [
        (workspace, era, front)
        for workspace in ("w", "v")
        for era in ("legacy", "modern")
        for front in ("http", "stdio")
    ]  # fmt: skip
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(opened(running, *kind)) for kind in kinds]
        calls = [
            client.call("sleep", {"seconds": 0.3, "steps": 3 + number}, _meta={"progressToken": 7})
            for number, client in enumerate(clients)
        ]
        await asyncio.gather(*calls)
        for number, client in enumerate(clients):
            notes = [note["params"] for note in client.notifications if note["method"] == "notifications/progress"]
            assert [(note["progressToken"], note["progress"]) for note in notes] == [
                (7, step) for step in range(1, 4 + number)
            ]
            assert {note["total"] for note in notes} == {3 + number}
    assert len(await running.rows("echo")) == 1


@pytest.mark.parametrize("upstream", ["legacy", "modern"])
async def test_cancelling_one_call_leaves_the_others(start: Start, era: Era, front: Front, upstream: str) -> None:
    """R27, A15: the server hears of it (its id, nobody else's); legacy says so, a modern HTTP client just leaves."""
    running = await start({"echo": server("--era", upstream)}, {**ALONE, "v": ALONE["w"]})
    async with opened(running, "w", era, front) as client, opened(running, "v", "modern", "http") as other:
        tail = asyncio.create_task(other.call("sleep", {"seconds": 0.6}, _meta={"progressToken": 1}))
        call = {"name": "sleep", "arguments": {"seconds": 600, "steps": 60000}, "_meta": {"progressToken": 2}}
        await cancelled(client, call)

        async def seen() -> list[int]:
            return (await other.call("seen"))["structuredContent"]["cancelled"]

        await wait_for(seen, 10)
        assert not (await tail).get("isError")
        assert len(await seen()) == 1
        assert (await client.call("echo", {"a": 1}))["structuredContent"] == {"a": 1}


async def test_a_session_belongs_to_its_key(start: Start) -> None:
    """R26: another key gets 404 for it, of whatever workspace; DELETE ends it."""
    running = await start({"echo": server()}, {**ALONE, "v": ALONE["w"]})
    other = (await running.mooring.key_create("w", name="other")).key
    async with await running.client("w") as client:
        await client.open()
        for token in (other, await running.key("v")):
            async with client.post(
                b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Authorization": f"Bearer {token}"}
            ) as it:
                await it.body()
                assert it.status == 404
        assert await client.result("ping") == {}
        assert await client.delete() == 200
        assert "error" in await client.request("ping")
        assert client.replies[-1].status == 404


@pytest.mark.parametrize("end", ["revoke", "rotate", "remove workspace"])
async def test_who_may_no_longer_come_in_is_out_at_once(start: Start, era: Era, end: str) -> None:
    """Revoked and rotated keys and removed workspaces end sessions and both kinds of streams."""
    running = await start({"echo": server()}, {**ALONE, "v": ALONE["w"]})
    new = await running.mooring.key_create("v", name="doomed")
    async with HttpClient(running.endpoint, token=new.key, era=era) as client, await running.client("w", era) as stays:
        await client.open()
        await stays.open()
        wanted = {"toolsListChanged": True}
        async with client.listening(wanted) as stream, stays.listening(wanted) as kept:
            assert (stream.status, kept.status) == (200, 200)
            if end == "remove workspace":
                write_config(running.home / "mooring.toml", {"echo": server()}, ALONE)
                assert (await running.mooring.reload()).applied
            else:
                await (running.mooring.key_revoke if end == "revoke" else running.mooring.key_rotate)(new.id)
            await wait_for(lambda: stream.complete, 10)
            assert not kept.complete
        message = await client.request("tools/list")
        assert "error" in message
        expected = {404, 403} if end == "remove workspace" else {401}
        assert client.replies[-1].status in expected
        assert (await stays.result("tools/list"))["tools"]


async def test_a_server_added_by_a_reload_is_announced_and_there(start: Start, era: Era) -> None:
    """A16, R35: on the GET stream and on the listen stream."""
    running = await start({"echo": server()})
    async with await running.client("w", era) as client:
        await client.open()
        async with client.listening({"toolsListChanged": True}) as stream:
            assert stream.status == 200
            if era == "modern":
                await client.heard("notifications/subscriptions/acknowledged")
            write_config(running.home / "mooring.toml", {"echo": server(), "more": server()})

            async def listed() -> bool:
                return "more_echo" in {tool["name"] for tool in (await client.result("tools/list"))["tools"]}

            await client.heard("notifications/tools/list_changed")
            await wait_for(listed, 10)
        assert (await client.call("more_echo", {"a": 1}))["structuredContent"] == {"a": 1}


ENDS_EVERY_STREAM = """
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

offers = {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"resources": {"subscribe": True}}},
    "resources/list": {"resources": [{"uri": "x://a", "name": "a"}]},
    "resources/templates/list": {"resourceTemplates": []},
}
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "subscriptions/listen":
        print("listened", file=sys.stderr, flush=True)
    if "id" in message:
        result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **offers.get(message["method"], {})}
        say(id=message["id"], result=result)
"""


async def test_servers_that_botch_subscriptions_harm_nobody(start: Start) -> None:
    """R12, invariant 9: one that ends every stream at once is not asked in a circle, one that never answers given up,
    in time and without a traceback."""
    silent = {"legacy": "resources/subscribe", "modern": "subscriptions/listen"}
    servers: dict[str, Any] = {"ends": {"command": sys.executable, "args": ["-c", ENDS_EVERY_STREAM]}}
    servers |= {name: server("--era", name, "--hang", method) for name, method in silent.items()}
    running = await start(servers, {name: {"mcp_servers": [name]} for name in servers})
    async with AsyncExitStack() as stack:
        clients = {name: await stack.enter_async_context(opened(running, name, "legacy", "http")) for name in servers}
        for client in clients.values():
            assert (await client.result("resources/list"))["resources"]
        assert await clients["ends"].result("resources/subscribe", {"uri": "x://a"}) == {}
        given_up = await asyncio.gather(
            *(clients[name].request("resources/subscribe", {"uri": "test://static-text"}) for name in silent)
        )
        assert all("within 5 s" in answer["error"]["message"] for answer in given_up)
    listened = await running.mooring.logs("ends", lines=1000)
    assert 2 <= len(listened) <= 10
    assert "Traceback" not in running.output
