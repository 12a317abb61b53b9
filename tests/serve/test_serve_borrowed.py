"""Agents beside a running daemon: their servers are the daemon's, and all else is theirs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

import agent_kinds
import agent_story as story
import mooring
from mooring.agents.handler import Approval, Handler, Verdict
from mooring.agents.pool import AgentPool
from mooring.config.home import Home
from mooring.errors import ConfigError, DaemonAbsent
from mooring.serve import borrowed
from mooring.serve.control_client import connected
from mooring.testing import wait_for
from mooring.testing.daemon import Daemon, daemon, server
from mooring.testing.http_client import HttpClient
from mooring.testing.model import Model

AGENT = {"type": "native", "model": "mine"}
MODERN = server("--era", "modern")
SERVERS = {
    "box": server(),
    "keyed": {**server(), "secrets": {"SECRET": {"env": "STORY_SECRET"}}},
    "asking": MODERN,
    "careful": {**MODERN, "tools": {"confirm": ["counter"]}},
    "alone": {**server("--era", "legacy"), "dialogue": "session"},
    "spare": server(),
}


@asynccontextmanager
async def pooled(running: Daemon, handler: Handler | None = None) -> AsyncGenerator[AgentPool]:
    async with mooring.connect(Home.below(running.home)) as m, m.agents(handler, {"mine": TestModel()}) as pool:
        yield pool


@asynccontextmanager
async def beside(home: Path, **agents: Any) -> AsyncGenerator[Daemon]:
    """A daemon with a workspace ``w`` and agents ``a`` and ``b``."""
    names = ["box", "keyed", "asking", "careful", "alone"]
    table = {"agents": {"a": {**AGENT, "mcp_servers": names}, "b": {**AGENT, "mcp_servers": ["box"]}, **agents}}
    async with daemon(home, SERVERS, {"w": {"mcp_servers": ["box"]}}, **table) as running:
        yield running


async def status(url: str, key: str) -> int:
    """What a ping is answered with."""
    async with HttpClient(url, token=key) as client, client.post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}') as reply:
        return reply.status


def audited(running: Daemon) -> list[dict[str, Any]]:
    """The calls that the daemon's audit has."""
    file = running.home / "state" / "audit.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [line for line in lines if line.get("event") == "call.finished"]


async def test_an_agent_shares_the_daemons_instances_and_is_in_its_audit(tmp_path: Path) -> None:
    """A21 A25"""
    async with beside(tmp_path) as running, pooled(running) as pool, pool.agent("a") as a, pool.agent("b") as b:
        async with await running.client("w") as client:
            await client.open()
            counts = [(await client.call("box_counter"))["structuredContent"]["count"]]
        for agent in (a, b):
            said = await agent._seat.called("box_counter", {}, "1")
            counts.append(said["structuredContent"]["count"])
        assert counts == [1, 2, 3], "one instance counts for all"
        assert len([row for row in await running.rows("box") if row.pid]) == 1
        await wait_for(lambda: len(audited(running)) == 3)
        assert [(line["workspace"], line["server"]) for line in audited(running)] == [
            ("w", "box"),
            ("agent/a", "box"),
            ("agent/b", "box"),
        ]


async def test_a_secret_that_only_the_daemon_has_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A25"""
    monkeypatch.setenv("STORY_SECRET", story.SECRET)
    async with beside(tmp_path) as running:
        monkeypatch.delenv("STORY_SECRET")
        async with pooled(running) as pool, pool.agent("a") as agent:
            said = await agent._seat.called("keyed_env", {}, "1")
            assert story.SECRET in str(said)


async def test_a_person_is_asked_once_and_where_the_agent_runs(tmp_path: Path) -> None:
    """A18 A31"""
    asked: list[str] = []

    async def approve(approval: Approval) -> Verdict:
        asked.append(approval.tool)
        return "allow"

    async def elicit(params: dict[str, Any]) -> dict[str, Any]:
        asked.append("elicit")
        return {"action": "accept", "content": {"name": "Ada"}}

    handler = Handler(approve=approve, elicit=elicit)
    async with beside(tmp_path) as running, pooled(running, handler) as pool, pool.agent("a") as agent:
        said = await agent._seat.called("careful_counter", {}, "1")
        assert not said.get("isError"), said
        assert asked == ["careful_counter"]
        for tool in ("asking_elicit", "alone_elicit"):
            assert "Ada" in str(await agent._seat.called(tool, {}, "2")), tool
        assert asked == ["careful_counter", "elicit", "elicit"]


async def test_what_is_added_while_it_runs_is_its_own(tmp_path: Path) -> None:
    """A23"""
    async with beside(tmp_path) as running, pooled(running) as pool, pool.agent("a") as agent:
        await agent.tools.add(story.greet)
        await agent.add_server("spare")
        names = set(await agent.refresh_tools())
        assert {"own_greet", "box_echo", "spare_echo"} <= names
        for tool in ("own_greet", "spare_counter"):
            assert not (await agent._seat.called(tool, {"name": "you"}, "1")).get("isError")
        assert not await running.rows("spare")
        async with await agent.session() as child:
            assert not (await child._seat.called("box_echo", {}, "1")).get("isError")
            assert not (await child._seat.called("alone_counter", {}, "1")).get("isError")
        await wait_for(lambda: len(audited(running)) == 1)
        assert audited(running)[0]["workspace"] == "agent/a"


async def test_what_was_lent_is_worth_nothing_afterwards(tmp_path: Path) -> None:
    """A30"""
    async with beside(tmp_path) as running:
        async with borrowed._borrowed(Home.below(running.home)) as loan:
            room = loan.rooms["agent/b"]
            assert room.variants == ("box",)
            url = loan.endpoint.replace("/mcp", "/s/box/mcp")
            async with HttpClient(url, token=room.key, era="modern") as client:
                assert "echo" in {tool["name"] for tool in (await client.result("tools/list"))["tools"]}
            assert await status(loan.endpoint.replace("/mcp", "/s/keyed/mcp"), room.key) == 403
            assert room.key not in running.output
        async with asyncio.timeout(20):  # the daemon notices by itself that the borrower has gone
            while any(row.name == "agents" for row in await running.mooring.key_list()):
                await asyncio.sleep(0.02)
        assert await status(url, room.key) == 401
        for file in running.home.rglob("*"):
            assert not file.is_file() or room.key.encode() not in file.read_bytes()


async def test_without_a_daemon_there_is_nothing_to_connect_to(tmp_path: Path) -> None:
    with pytest.raises(DaemonAbsent):
        async with mooring.connect(Home.below(tmp_path)):
            pass
    async with beside(tmp_path) as running, connected(Home.below(running.home)) as control:
        with pytest.raises(ConfigError, match="Functions"):
            await mooring.facade.Mooring(control).add_server("x", functions=[story.greet])


async def test_the_command_uses_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Model() as model:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        scripted = {"type": "native", "model": "openai-chat:scripted", "mcp_servers": ["box"]}
        async with beside(tmp_path, c=scripted) as running:
            code, out, err = await running.command("agent", "run", "c", "%call box_counter\n%say well")
            assert (code, out.strip()) == (0, "well"), err
            await wait_for(lambda: audited(running))
            assert audited(running)[0]["workspace"] == "agent/c"
            assert len(await running.rows("box")) == 1


@pytest.mark.parametrize("kind", [agent_kinds.claude, agent_kinds.codex_app_server, agent_kinds.claude_acp])
async def test_a_program_has_the_daemons_servers_and_the_functions_of_who_runs_it(
    kind: agent_kinds.Kind, tmp_path: Path
) -> None:
    """A25: two endpoints, one after the other, and nothing mixed up."""
    home = tmp_path / "home"
    home.mkdir()
    async with Model() as model, kind(tmp_path, model) as table, beside(home, c={**table, "mcp_servers": ["box"]}) as d:
        async with pooled(d) as pool, pool.agent("c") as agent:
            await agent.tools.add(story.greet)
            result = await agent.run('%call box_counter\n%call own_greet {"name": "you"}\n%say ok', deps="d1")
            assert result.text.strip().endswith("ok"), result
            said = [text for turn in model.turns for text in turn.results]
            assert any("hello you from c, deps d1" in text for text in said), said
        await wait_for(lambda: audited(d))
        assert [(line["workspace"], line["tool"]) for line in audited(d)] == [("agent/c", "counter")]
