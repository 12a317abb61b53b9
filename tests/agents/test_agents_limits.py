"""Agents that lack something, or misbehave: what Mooring does instead of giving up or dropping something."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import acp_agent
import mooring
from mooring.errors import Crashed, LaunchMissing, MooringError
from mooring.testing.daemon import server
from mooring.testing.processes import alive
from mooring.wire.http import HttpServer, Reply, Request, Stream

POOR = {"type": "acp", "command": [sys.executable, str(Path(acp_agent.__file__))]}


async def test_a_server_that_an_agent_cannot_take_goes_through_mooring(caplog: pytest.LogCaptureFixture) -> None:
    """A25 A28"""
    config = {
        "mcp_servers": {"web": {"url": "http://127.0.0.1:9/mcp"}, "box": server()},
        "agents": {"a": {**POOR, "via": "direct", "mcp_servers": ["web", "box"]}},
    }
    async with mooring.open(config) as m, m.agents() as pool, pool.agent("a") as agent:
        given = json.loads((await agent.run("what?")).text)
        assert [entry["name"] for entry in given] == ["mooring", "box"]
        assert all(os.path.isabs(entry["command"]) for entry in given)
        assert given[1]["env"] == []
        ways = {row.server: row.way for row in agent._seat.agent.servers}
        assert ways == {"web": "mooring", "box": "direct"}
        assert "web through Mooring" in caplog.text


async def test_an_agent_that_cannot_change_its_servers_gets_new_ones_through_mooring(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A28"""
    config = {
        "mcp_servers": {"one": server(), "two": server()},
        "agents": {"a": {**POOR, "via": "direct", "mcp_servers": ["one"]}},
    }
    async with mooring.open(config) as m, m.agents() as pool, pool.agent("a") as agent:
        await agent.run("begin")
        await agent.add_server("two")
        given = json.loads((await agent.run("what?")).text)
        assert [entry["name"] for entry in given] == ["mooring", "one"]
        assert {row.server: row.way for row in agent._seat.agent.servers} == {"one": "direct", "two": "mooring"}
        assert "two_echo" in await agent.refresh_tools()
        assert "did not look at its changed tools" in caplog.text


async def test_an_agent_that_dies_or_refuses_says_so() -> None:
    async with mooring.open({"agents": {"a": POOR}}) as m, m.agents() as pool:
        async with pool.agent("a") as agent:
            with pytest.raises(MooringError, match="refusal"):
                await agent.run("refuse")
            with pytest.raises(Crashed, match='agent "a" ended'):
                await agent.run("die")
        async with pool.agent("a") as agent:
            assert (await agent.run("again")).stop == "done"


@pytest.mark.parametrize("kind", ["claude_code", "codex", "acp"])
async def test_a_missing_program_is_named(kind: str) -> None:
    config = {"agents": {"a": {"type": kind, "command": "no-such-agent"}}}
    async with mooring.open(config) as m, m.agents() as pool:
        with pytest.raises(LaunchMissing, match="no-such-agent"):
            async with pool.agent("a"):
                pass
        assert pool.agent("a").workspace not in m._control._app.relay.stewards


@pytest.mark.parametrize("kind", ["claude_code", "codex", "acp"])
async def test_a_program_that_ends_at_once_shows_its_last_words(kind: str) -> None:
    code = "import sys; sys.stderr.write('no licence found'); sys.exit(7)"
    config = {"agents": {"a": {"type": kind, "command": [sys.executable, "-c", code]}}}
    async with mooring.open(config) as m, m.agents() as pool:
        with pytest.raises(MooringError) as caught:
            await asyncio.wait_for(pool.agent("a").__aenter__(), 30)
        shown = f"{caught.value} {caught.value.details}"
        assert "no licence found" in shown, shown


Answers = Callable[[dict[str, Any]], list[dict[str, Any]]]


@asynccontextmanager
async def ag_ui(answers: Answers) -> AsyncGenerator[str]:
    """The URL of an AG-UI server that says what ``answers`` gives for each request."""

    async def handle(request: Request) -> Reply | Stream:
        events = answers(json.loads(request.body))
        body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
        return Reply(200, body, b"Content-Type: text/event-stream\r\n")

    def front(request: Request) -> Awaitable[Reply | Stream]:
        return handle(request)

    async with HttpServer(front) as http:
        host, port = await http.listen("127.0.0.1", 0)
        yield f"http://{host}:{port}/"


def calls(name: str, arguments: str, id: str = "1") -> list[dict[str, Any]]:
    return [
        {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name},
        {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": arguments},
        {"type": "TOOL_CALL_END", "toolCallId": id},
    ]


def boxed(url: str) -> dict[str, Any]:
    """An agent with one server."""
    return {"mcp_servers": {"box": server()}, "agents": {"a": {"type": "ag_ui", "url": url, "mcp_servers": ["box"]}}}


FINISHED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


async def test_rounds_have_an_end() -> None:
    """A29"""
    rounds: list[int] = []

    def answers(body: dict[str, Any]) -> list[dict[str, Any]]:
        rounds.append(len(body["messages"]))
        return [*calls("box_counter", "{}", f"c{len(rounds)}"), FINISHED]

    async with ag_ui(answers) as url:
        config = {
            "mcp_servers": {"box": server()},
            "agents": {"a": {"type": "ag_ui", "url": url, "mcp_servers": ["box"]}},
        }
        async with mooring.open(config) as m, m.agents() as pool, pool.agent("a") as agent:
            with pytest.raises(MooringError, match="32 rounds"):
                await agent.run("go")
    assert len(rounds) == 32


async def test_failures_go_back_as_tool_messages_and_tools_are_looked_up_each_round() -> None:
    """A29"""
    seen: list[dict[str, Any]] = []

    def answers(body: dict[str, Any]) -> list[dict[str, Any]]:
        seen.append(body)
        if len(seen) == 1:
            return [*calls("box_error", "{}", "e"), *calls("box_echo", "{nonsense", "n"), FINISHED]
        return [{"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "over"}, FINISHED]

    async with ag_ui(answers) as url:
        config = {
            "mcp_servers": {"box": server()},
            "agents": {"a": {"type": "ag_ui", "url": url, "mcp_servers": ["box"]}},
        }
        async with mooring.open(config) as m, m.agents() as pool, pool.agent("a") as agent:
            assert (await agent.run("go")).text == "over"
    first, second = seen
    assert {tool["name"] for tool in first["tools"]} == {tool["name"] for tool in second["tools"]}
    error, nonsense = second["messages"][-2:]
    assert (error["toolCallId"], "it went wrong" in error["error"]) == ("e", True)
    assert "not a JSON object" in nonsense["error"]
    assert first["threadId"] == second["threadId"]
    assert first["runId"] != second["runId"]


async def test_an_ag_ui_server_that_fails_says_why() -> None:
    """A29"""

    def answers(body: dict[str, Any]) -> list[dict[str, Any]]:
        broken = "break" in body["messages"][-1]["content"]
        return (
            [{"type": "TEXT_MESSAGE_CHUNK", "delta": "x"}] if broken else [{"type": "RUN_ERROR", "message": "no luck"}]
        )

    async with ag_ui(answers) as url:
        config = {"agents": {"a": {"type": "ag_ui", "url": url}}}
        async with mooring.open(config) as m, m.agents() as pool, pool.agent("a") as agent:
            with pytest.raises(MooringError, match="no luck"):
                await agent.run("go")
            with pytest.raises(MooringError, match="ended in the middle"):
                await agent.run("break")
    async with mooring.open(config) as m, m.agents() as pool, pool.agent("a") as agent:
        with pytest.raises(MooringError, match="cannot be reached"):
            await agent.run("go")


async def test_no_program_outlives_the_pool() -> None:
    """A12"""
    async with mooring.open({"agents": {"a": POOR, "b": POOR}}) as m, m.agents() as pool:
        agents = [await pool.agent(name).__aenter__() for name in ("a", "b")]
        pids = [pid for agent in agents for pid in [agent._driver._program.pid] if pid]
        assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)
