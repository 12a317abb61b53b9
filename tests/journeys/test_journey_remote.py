"""Remote servers, and processes that speak HTTP, behind a real daemon: clients of both eras notice no difference."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mooring.testing import HttpClient, wait_for
from mooring.testing.daemon import Daemon
from mooring.testing.speech import Era
from raw_http_server import Exchange, RawServer

Start = Callable[..., Awaitable[Daemon]]
ERAS: tuple[Era, ...] = ("legacy", "modern")
LIMIT = 60.0
SERVERS = ("legacy", "modern", "dual")

PROCESS = """
import sys
from mcp.server import MCPServer
app = MCPServer("sdk")

@app.tool()
def add(a: int, b: int) -> int:
    return a + b

print("about to listen", flush=True)
app.run(sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]))
"""


async def client(running: Daemon, era: Era, workspace: str = "w") -> HttpClient:
    made = await running.client(workspace, era, timeout=LIMIT)
    await made.open()
    return made


async def names(it: HttpClient) -> set[str]:
    return {tool["name"] for tool in (await it.result("tools/list"))["tools"]}


@pytest.mark.parametrize("spoken", SERVERS)
async def test_a_remote_is_listed_and_called_by_clients_of_both_eras(start: Start, spoken: str) -> None:
    """R1, R27, A15: one upstream conversation for all; progress reaches its caller; a cancelled call is cancelled."""
    begun = asyncio.Event()

    async def count(it: Exchange, arguments: Any) -> Any:
        token = it.message["params"]["_meta"]["progressToken"]
        for n in range(3):
            await it.note("notifications/progress", progressToken=token, progress=n)
        return {"content": [], "vendor": 123456789012345678901234567890}

    async def forever(it: Exchange, arguments: Any) -> None:
        await it.stream()
        begun.set()
        await it.over.wait()

    async with RawServer(spoken) as server, asyncio.timeout(LIMIT):
        server.tools |= {"count": count, "forever": forever}
        running = await start({"far": {"url": server.url, "headers": {"X-Team": "docs"}}})
        for era in ERAS:
            async with await client(running, era) as it:
                await wait_for(lambda: names(it), 10)
                assert await names(it) == {"far_echo", "far_count", "far_forever"}
                assert (await it.call("far_echo", {"a": [1, None]}))["structuredContent"] == {"a": [1, None]}
                counted = await it.call("far_count", _meta={"progressToken": "mine"})
                assert counted["vendor"] == 123456789012345678901234567890
                steps = [note["params"] for note in it.notifications if note["method"] == "notifications/progress"]
                assert [step["progress"] for step in steps] == [0, 1, 2]
                assert {step["progressToken"] for step in steps} == {"mine"}
                begun.clear()
                task = asyncio.create_task(it.call("far_forever"))
                await begun.wait()
                if era == "legacy":
                    call = server.last("tools/call")
                    await it.notify("notifications/cancelled", {"requestId": it._last_id})
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                call = server.last("tools/call")
                await asyncio.wait_for(call.over.wait(), LIMIT)
        eras = {"legacy": ["legacy"], "dual": ["legacy", "modern"], "modern": ["modern"]}[spoken]

        async def settled() -> bool:  # a first look is over, and so is a try in the era that the server has not
            return sorted(row.era or "" for row in await running.rows("far")) == eras

        await wait_for(settled, 10)
        assert {(row.state, row.pid, row.restarts) for row in await running.rows("far")} == {("ready", None, 0)}
        assert server.last("tools/call").headers["x-team"] == "docs"
        # What is only for clients that can be asked is looked for apart; the other era is tried once.
        assert server.methods().count("initialize") == (2 if spoken == "legacy" else 1)


@pytest.mark.parametrize("spoken", ["legacy", "modern"])
async def test_a_changed_list_of_a_remote_is_announced(start: Start, spoken: str) -> None:
    """R12, A16: and listed anew."""
    async with RawServer(spoken) as server, asyncio.timeout(LIMIT):
        running = await start({"far": {"url": server.url}})
        async with await client(running, "legacy") as it:
            await wait_for(lambda: names(it), 10)
            async with it.listening():
                await wait_for(lambda: server.outside, 10)
                server.tools["fresh"] = server.tools["echo"]
                await server.announce("notifications/tools/list_changed")
                await it.heard("notifications/tools/list_changed")

                async def fresh() -> bool:
                    return "far_fresh" in await names(it)

                await wait_for(fresh, 10)


async def test_a_remote_that_forgets_its_session_is_not_noticed(start: Start) -> None:
    """R27: the server restarts on its port and knows nobody."""
    async with RawServer("legacy") as server, asyncio.timeout(LIMIT):
        running = await start({"far": {"url": server.url}})
        async with await client(running, "modern") as it:
            await wait_for(lambda: names(it), 10)
            await it.call("far_echo")
            await wait_for(lambda: server.methods().count("DELETE") == 1, 10)  # the first look is over
            server.known.clear()
            results = await asyncio.gather(*(it.call("far_echo", {"n": n}) for n in range(5)))
            assert [result["structuredContent"]["n"] for result in results] == list(range(5))
        (row,) = await running.rows("far")
        assert (row.state, row.restarts, row.last_error) == ("ready", 0, "")
        assert server.methods().count("initialize") == 3


async def test_a_remote_that_is_down_says_so_and_comes_back(start: Start) -> None:
    """A16, R14: the error names the address, the reason and the next try; other servers go on."""
    async with RawServer("modern") as server, RawServer("legacy") as other, asyncio.timeout(LIMIT):
        running = await start({"far": {"url": f"{server.url}?key=hush"}, "near": {"url": other.url}})
        async with await client(running, "modern") as it:
            await wait_for(lambda: names(it), 10)
            await it.call("far_echo")
            await server.stop()
            result = await it.call("far_echo")
            assert result["isError"]
            error = result["_meta"]["mooring/error"]
            assert error["server"] == "far"
            assert error["retry_at"] > time.time() - 5
            assert f"cannot be reached at {server.url}: Connection refused" in result["content"][0]["text"]
            assert "hush" not in result["content"][0]["text"]
            assert not (await it.call("near_echo")).get("isError")
            assert "far_echo" in await names(it)
            await server.start()

            async def back() -> bool:
                return not (await it.call("far_echo")).get("isError")

            await wait_for(back, 20, 0.2)
        assert "hush" not in running.output


async def test_a_remote_that_wants_a_login_says_so(start: Start, tmp_path: Path) -> None:
    """R12: and gets the bearer token from a secret reference, which is shown nowhere."""
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("t0psecret\n")
    async with RawServer("modern") as server, asyncio.timeout(LIMIT):

        async def guarded(it: Exchange) -> bool:
            if it.headers.get("authorization") == "Bearer t0psecret" and it.headers.get("x-key") == "k=t0psecret":
                return False
            await it.reply(401)
            return True

        server.override = guarded
        running = await start(
            {
                "open": {"url": server.url},
                "shut": {
                    "url": server.url,
                    "auth": {"file": str(secret)},
                    "secrets": {"KEY": {"file": str(secret)}},
                    "headers": {"X-Key": "k={KEY}"},
                },
                "later": {"url": "http://far.example/mcp", "auth": "oauth"},
            },
            {name: {"mcp_servers": [name], "prefix": ""} for name in ("open", "shut", "later")},
        )
        async with await client(running, "modern", "shut") as it:
            await wait_for(lambda: names(it), 10)
            assert not (await it.call("echo")).get("isError")
        async with await client(running, "modern", "open") as it:
            result = await it.call("echo")
            assert result["isError"]

        async def said() -> bool:
            return any("wants a login" in row.last_error + row.reason for row in await running.rows("open"))

        await wait_for(said, 10)
        _, out, _ = await running.command("check")
        assert 'auth = "oauth" needs https' in out
        assert "t0psecret" not in running.output + out


async def test_the_old_transport_works_through_the_gateway(start: Start) -> None:
    """R27: HTTP+SSE, named and found out."""
    async with RawServer("sse") as server, RawServer("sse") as other, asyncio.timeout(LIMIT):
        running = await start({"named": {"url": server.url, "transport": "sse"}, "found": {"url": other.url}})
        for era in ERAS:
            async with await client(running, era) as it:
                await wait_for(lambda: names(it), 10)
                assert await names(it) == {"named_echo", "found_echo"}
                for tool in ("named_echo", "found_echo"):
                    assert (await it.call(tool, {"a": 1}))["structuredContent"] == {"a": 1}


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
async def test_a_command_that_speaks_http_is_started_when_needed(start: Start, tmp_path: Path, transport: str) -> None:
    """R10: {port} is a free one, ready is when MCP answers; killed, it comes back; it ends with the daemon."""
    (tmp_path / "server.py").write_text(PROCESS)
    args = ["-W", "ignore", str(tmp_path / "server.py"), transport, "{port}"]
    more = {"transport": "sse"} if transport == "sse" else {}
    async with asyncio.timeout(2 * LIMIT):
        running = await start({"web": {"command": sys.executable, "args": args, "port": 8000, **more}})
        for era in ERAS:
            async with await client(running, era) as it:
                await wait_for(lambda: names(it), 30)
                result = await it.call("web_add", {"a": 1, "b": 2})
                assert result["structuredContent"] == {"result": 3}
        (row,) = await running.rows("web")
        assert (row.state, row.restarts) == ("ready", 0)
        assert row.pid
        assert "about to listen" in (await running.command("logs", "web"))[1]
        await asyncio.to_thread(__import__("os").kill, row.pid, 9)

        async def back() -> bool:
            async with await client(running, "modern") as it:
                return not (await it.call("web_add", {"a": 1, "b": 2})).get("isError")

        await wait_for(back, 30, 0.2)
        (again,) = await running.rows("web")
        assert again.pid != row.pid


async def test_a_command_that_ends_at_once_is_reported_at_once(start: Start) -> None:
    """R10: with its last words, long before the start's time limit."""
    code = "import sys; sys.stderr.write('no such database\\n'); sys.exit(3)"
    async with asyncio.timeout(LIMIT):
        running = await start({"web": {"command": sys.executable, "args": ["-c", code], "port": 8000}})

        async def said() -> bool:
            rows = await running.rows("web")
            return any("ended before it answered" in row.last_error for row in rows)

        began = time.monotonic()
        await wait_for(said, 20)
        assert time.monotonic() - began < 15
        (row,) = await running.rows("web")
        assert "no such database" in row.stderr


@pytest.mark.network
@pytest.mark.timeout(400)
@pytest.mark.parametrize("transport", ["streamableHttp", "sse"])
async def test_server_everything_over_http(start: Start, transport: str) -> None:
    """R27: the reference server of the TypeScript SDK, in both eras of clients."""
    npx = shutil.which("npx") or pytest.skip("npx is not installed")
    server = {
        "command": npx,
        "args": ["-y", "@modelcontextprotocol/server-everything", transport],
        "port": 3001,
        "timeouts": {"start": "180s"},
        **({"transport": "sse"} if transport == "sse" else {}),
    }
    running = await start({"all": server})
    for era in ERAS:
        async with await running.client("w", era, timeout=200.0) as it:
            await it.open()
            await wait_for(lambda: names(it), 200, 0.5)
            assert "ahoy" in (await it.call("all_echo", {"message": "ahoy"}))["content"][0]["text"]
            params = {"duration": 1, "steps": 2}
            result = await it.call("all_trigger-long-running-operation", params, _meta={"progressToken": 5})
            assert not result.get("isError"), result
            steps = [note for note in it.notifications if note["method"] == "notifications/progress"]
            assert [step["params"]["progress"] for step in steps] == [1, 2]


async def test_a_session_of_its_own_brings_dialogue(start: Start) -> None:
    """A18, R27: with dialogue = "session" each caller has its own upstream session and answers its own questions."""
    both = asyncio.Barrier(2)

    async def who(it: Exchange, arguments: Any) -> Any:
        await both.wait()
        answer = await it.ask("elicitation/create", {"message": arguments["n"], "requestedSchema": {"type": "object"}})
        return {"content": [], "structuredContent": answer["result"]["content"]}

    async with RawServer("legacy") as server, asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        server.tools["who"] = who
        running = await start({"far": {"url": server.url, "dialogue": "session"}})
        callers = [await running.client("w", "legacy", capabilities={"elicitation": {}}) for _ in range(2)]
        for n, it in enumerate(callers):
            await stack.enter_async_context(it)
            it.answers["elicitation/create"] = {"action": "accept", "content": {"name": n}}
            await it.open()
            await wait_for(lambda it=it: names(it), 10)
        results = await asyncio.gather(*(it.call("far_who", {"n": str(n)}) for n, it in enumerate(callers)))
        assert [result["structuredContent"]["name"] for result in results] == [0, 1]
        assert [[asked["params"]["message"] for asked in it.asked] for it in callers] == [["0"], ["1"]]
        assert server.last("initialize").message["params"]["capabilities"] == {"elicitation": {}}
        for it in callers:
            await it.delete()
        await wait_for(lambda: len(server.known) <= 1, 10)


async def test_a_legacy_client_that_can_be_asked_meets_a_remote_of_both_eras_in_its_own(start: Start) -> None:
    """A18, R27: such a server may ask in the legacy way only. Clients that cannot be asked share, those of each era."""

    async def curious(it: Exchange, arguments: Any) -> Any:
        answer = await it.ask("elicitation/create", {"message": "who?"})
        return {"content": [], "said": answer["result"]}

    async with RawServer("dual") as server, asyncio.timeout(LIMIT):
        server.tools["curious"] = curious
        running = await start({"far": {"url": server.url}})
        modern, plain = await client(running, "modern"), await client(running, "legacy")
        able = await running.client("w", "legacy", timeout=LIMIT, capabilities={"elicitation": {}})
        async with modern, plain, able:
            await able.open()
            assert (await able.call("far_curious"))["said"] == able.answers["elicitation/create"]
            for it in (modern, plain):
                assert (await it.call("far_echo", {"a": 1}))["structuredContent"] == {"a": 1}
            rows = [(row.era, row.scope[:2]) for row in await running.rows("far")]
            assert sorted(rows, key=str) == [("legacy", "le"), ("legacy", "s:"), ("modern", "")]
            await able.delete()

        async def ended() -> bool:
            return len([row for row in await running.rows("far") if row.state == "ready"]) == 2

        await wait_for(ended, LIMIT)


async def test_legacy_clients_that_cannot_be_asked_share_one_session_with_a_remote_of_both_eras(start: Start) -> None:
    """A16, R27: mirrored like the others, and at no further cost for each of them."""
    async with RawServer("dual") as server, asyncio.timeout(LIMIT):
        running = await start({"far": {"url": server.url}})
        for _ in range(3):
            async with await client(running, "legacy") as it:
                assert (await it.call("far_echo", {"a": 1}))["structuredContent"] == {"a": 1}
        calls = [each for each in server.seen if each.message.get("method") == "tools/call"]
        assert len({each.headers["mcp-session-id"] for each in calls}) == 1
        assert server.last("initialize").message["params"]["capabilities"] == {}
        async with await client(running, "modern") as it:
            await it.call("far_echo")
        assert "mcp-session-id" not in server.last("tools/call").headers


@pytest.mark.parametrize("spoken", ["legacy", "modern", "dual"])
async def test_tools_for_clients_that_can_be_asked_are_listed_from_the_start_and_stay(
    start: Start, spoken: str
) -> None:
    """A18, R12: whoever comes first, and whatever that one can do."""
    able: set[str] = set()

    async def choosy(it: Exchange) -> bool:
        params = it.message.get("params", {})
        if it.message.get("method") == "initialize" and "sampling" in params["capabilities"]:
            able.add(f"s{server._count + 1}")
        if it.message.get("method") != "tools/list":
            return False
        declared = params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities", {})
        more = ["ask"] if "sampling" in declared or it.headers.get("mcp-session-id") in able else []
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", *more)]
        await it.result({"tools": tools, **({"resultType": "complete"} if declared else {})})
        return True

    async with RawServer(spoken) as server, asyncio.timeout(LIMIT):
        server.override = choosy
        running = await start({"far": {"url": server.url}})
        for era in ERAS:
            async with await client(running, era) as it:

                async def both(it: HttpClient = it) -> bool:
                    return await names(it) == {"far_echo", "far_ask"}

                await wait_for(both, 10)
                await it.call("far_echo")
                assert await both()
        async with await running.client("w", "legacy", timeout=LIMIT, capabilities={"roots": {}}) as it:
            await it.open()
            await it.call("far_echo")
            assert await names(it) == {"far_echo", "far_ask"}
        _, out, _ = await running.command("pins", "list", "--json")
        assert {row["tool"]: row["state"] for row in json.loads(out)} == {"echo": "pinned", "ask": "pinned"}


async def test_a_modern_remote_is_offered_the_legacy_era_once(start: Start) -> None:
    async with RawServer("modern") as server, asyncio.timeout(LIMIT):
        running = await start({"far": {"url": server.url}})
        for _ in range(3):
            it = await running.client("w", "legacy", timeout=LIMIT, capabilities={"elicitation": {}})
            async with it:
                await it.open()
                for number in range(2):
                    assert (await it.call("far_echo", {"a": number}))["structuredContent"] == {"a": number}
        assert [each.message.get("method") for each in server.seen].count("initialize") == 1
