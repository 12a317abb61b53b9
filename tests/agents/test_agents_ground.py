"""What is left of an agent in the parts that it stood on: nothing, whatever fails, and again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

import mooring
from mooring.agents.events import AnyEvent, ToolCall
from mooring.agents.handler import Approval, Handler, Verdict
from mooring.agents.program import started
from mooring.config.home import Home
from mooring.config.plan_servers import Process
from mooring.errors import ConfigError, MooringError, StoreError
from mooring.serve import agents
from mooring.serve.app import App
from mooring.testing.daemon import server
from mooring.testing.http_client import HttpClient

AGENT = {"type": "native", "model": "test"}
CONFIG: dict[str, Any] = {"mcp_servers": {"echo": server()}, "agents": {"a": AGENT}}


@asynccontextmanager
async def opened(config: Any = CONFIG) -> AsyncGenerator[tuple[mooring.Mooring, App]]:
    async with asyncio.timeout(60), mooring.open(config) as m:
        yield m, m._control._app


async def test_what_an_agent_was_given_stays_when_something_else_changes() -> None:
    """As the registry does when it adds a server."""
    async with opened() as (m, app), m.agents() as pool, pool.agent("a") as agent:
        await agent.add_server("echo")
        assert any(mount.server == "echo" for mount in app.plan.workspaces["agent/a"].mounts)
        await app.adjust()
        assert any(mount.server == "echo" for mount in app.plan.workspaces["agent/a"].mounts)


async def test_the_endpoint_of_agents_is_open_in_each_of_several_blocks() -> None:
    async with opened() as (m, app):
        before = len(app.on_applied), len(app.keys.on_revoked)
        for _ in range(2):
            async with m.agents() as pool, pool.agent("a") as agent:
                url = await agent._seat.ground.endpoint()
                async with HttpClient(url, token=agent._seat.key.key) as client:
                    assert await client.open()
            assert (app.endpoint, app.public_url) == ("", "")
        assert (len(app.on_applied), len(app.keys.on_revoked)) == before


async def test_a_socket_for_programs_that_could_not_be_made_is_made_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else its program would find nobody there, and start a daemon of its own."""
    made = agents.serving
    failures = [StoreError("not now")]

    @asynccontextmanager
    async def serving(*what: Any) -> AsyncGenerator[None]:
        if failures:
            raise failures.pop()
        async with made(*what):
            yield

    monkeypatch.setattr(agents, "serving", serving)
    async with opened() as (m, _), m.agents() as pool, pool.agent("a") as agent:
        ground = agent._seat.ground
        with pytest.raises(StoreError, match="not now"):
            await ground.shim("agent/a")
        _, environment = await ground.shim("agent/a")
        _, writer = await asyncio.open_unix_connection(Home.below(environment["MOORING_HOME"]).socket)
        writer.close()


async def test_nothing_of_the_endpoint_goes_on_behind_its_block() -> None:
    """Where an issuer is configured, its tokens are watched as long as somebody could come with one."""
    issuer = {"issuer": "http://127.0.0.1:9", "admit": [{"workspace": "alice", "claims": {}}]}
    async with opened({**CONFIG, "workspaces": {"alice": {}}, "identity": {"company": issuer}}) as (m, app):
        async with m.agents() as pool, pool.agent("a") as agent:
            await agent._seat.ground.endpoint()
            assert app.login.identity is not None
            assert watching()
        assert app.login.identity is None
        assert not watching()


def watching() -> list[asyncio.Task[Any]]:
    """The tasks that end tokens."""
    return [task for task in asyncio.all_tasks() if "expiring" in repr(task.get_coro())]


async def test_an_agent_opens_and_closes_while_the_configuration_is_not_valid(tmp_path: Path) -> None:
    file = tmp_path / "mooring.toml"
    file.write_text('[agents.a]\ntype = "native"\nmodel = "test"\n')
    async with opened(file) as (m, app), m.agents() as pool:
        async with pool.agent("a"):
            file.write_text("[[[")
        async with pool.agent("a") as agent:
            await agent.tools.add(lambda_)
            assert await agent.refresh_tools() == ["own_lambda_"]
            with pytest.raises(ConfigError):
                await agent.add_server("echo")
        assert app.additions.functions == {}
        assert "own:agent/a" not in app.plan.variants


def lambda_() -> str:
    """Says something."""
    return "something"


async def test_an_agent_that_could_not_be_opened_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (m, app), m.agents() as pool:
        agent = pool.agent("a")
        adjust, failing = app.adjust, [True]

        async def broken() -> None:
            if failing:
                failing.clear()
                raise StoreError("the disk is full")
            await adjust()

        monkeypatch.setattr(app, "adjust", broken)
        with pytest.raises(StoreError):
            await agent.__aenter__()
        assert app.keys.rows() == []
        assert app.relay.stewards == {}
        assert app.additions.functions == {}
        async with agent:
            assert list(app.relay.stewards) == ["agent/a"]


async def test_a_program_that_could_not_be_shown_a_change_is_shown_it_before_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        opened() as (m, _),
        m.agents(models={"test": TestModel(call_tools=[])}) as pool,
        pool.agent("a") as agent,
    ):
        refreshed: list[int] = []

        async def refresh() -> None:
            refreshed.append(len(refreshed))
            if len(refreshed) == 1:
                raise MooringError("it did not connect")

        monkeypatch.setattr(agent._driver, "refresh", refresh)
        await agent.tools.add(lambda_)
        with pytest.raises(MooringError, match="did not connect"):
            await agent.run("hello")
        await agent.run("hello")
        await agent.run("hello")
        assert len(refreshed) == 2


async def test_a_program_that_cannot_be_interrupted_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (m, _), m.agents(models={"test": TestModel()}) as pool, pool.agent("a") as agent:
        begun = asyncio.Event()

        async def run(prompt: str, tell: Any) -> None:
            begun.set()
            await asyncio.get_running_loop().create_future()

        async def interrupt() -> None:
            raise OSError("its library does not reach it")

        monkeypatch.setattr(agent._driver, "run", run)
        monkeypatch.setattr(agent._driver, "interrupt", interrupt)
        running = asyncio.create_task(agent.run("hello"))
        await begun.wait()
        await agent.cancel()
        assert (await running).stop == "cancelled"


async def test_a_session_that_was_closed_leaves_nothing() -> None:
    """A host may make one for each conversation, for months."""
    async with opened() as (m, app), m.agents() as pool, pool.agent("a") as agent:
        before = len(app.plan.workspaces), len(app.plan.agents)
        for _ in range(3):
            async with await agent.session() as child:
                await child.add_server("echo")
                assert "echo_echo" in await child.refresh_tools()
                await child.disable("echo_echo")
        assert (len(app.plan.workspaces), len(app.plan.agents)) == before
        assert len(pool._agents) == 1
        assert list(app.subscriptions._sessions) == ["agent/a"]
        edits = agent._seat.ground._edits
        assert (edits.sessions, edits.given, edits.denied, edits.routed) == ({}, {}, {}, {})
        with pytest.raises(ConfigError, match="is over"):
            await child.__aenter__()


async def test_what_was_changed_in_one_block_is_not_there_in_the_next() -> None:
    async with opened() as (m, app):
        async with m.agents() as pool:
            await pool.add_server("echo")
            async with await pool.agent("a").session() as child:
                assert "echo_echo" in await child.refresh_tools()
        assert list(app.plan.workspaces) == ["agent/a"]
        async with m.agents() as pool, pool.agent("a") as agent:
            assert await agent.refresh_tools() == []


async def test_a_program_that_takes_long_to_end_does_not_swallow_a_cancellation() -> None:
    async with opened() as (m, _), m.agents() as pool:
        seat = pool.agent("a")._seat
        closing = asyncio.Event()

        async def use() -> None:
            async with started(seat, Process(argv=("sleep", "600"))) as program:
                program.writer.write(b"x" * (1 << 20))  # nobody reads it
                closing.set()

        task = asyncio.create_task(use())
        await closing.wait()
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()


async def test_a_call_of_a_later_run_is_not_taken_for_one_of_an_earlier() -> None:
    """An ACP agent may number its calls anew: its own tools are asked about, whatever Mooring's tool had the number."""
    from acp.schema import PermissionOption, ToolCallStart

    from mooring.agents.acp import Host

    asked: list[str] = []

    class Place:
        run = None

        async def listed(self) -> list[dict[str, Any]]:
            return [{"name": "mine_echo"}]

        async def permitted(self, tool: str, given: dict[str, Any]) -> str:
            asked.append(tool)
            return "no"

    host = Host(Place())  # type: ignore[arg-type]
    told: list[AnyEvent] = []
    options = [PermissionOption(option_id=kind, name=kind, kind=kind) for kind in ("allow_once", "reject_once")]
    chosen: list[str] = []
    for title, kind in (("mine_echo", "other"), ("rm -r", "execute")):
        async with host.telling(told.append):
            call = ToolCallStart(session_update="tool_call", tool_call_id="1", title=title, kind=kind)
            answer = await host.request_permission("s", call, options)  # type: ignore[arg-type]
            chosen.append(answer.outcome.option_id)  # type: ignore[union-attr]
    assert (asked, chosen) == (["rm -r"], ["allow_once", "reject_once"])
    assert [event.tool for event in told if isinstance(event, ToolCall)] == ["mine_echo", "rm -r"]


async def test_an_answer_of_the_host_that_fails_skips_the_call() -> None:
    async def approve(approval: Approval) -> Verdict:
        raise OSError("no terminal")

    config = {**CONFIG, "agents": {"a": {**AGENT, "confirm": "always", "mcp_servers": ["echo"]}}}
    async with opened(config) as (m, _), m.agents(Handler(approve=approve)) as pool, pool.agent("a") as agent:
        said = await agent._seat.called("echo_echo", {}, "1")
        assert said["isError"] is True
