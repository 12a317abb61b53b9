"""One story about every kind of agent, each a real program with the scripted model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import agent_story as story
import mooring
from agent_kinds import KINDS, PROGRAMS, Talk, scripted
from mooring.agents.pool import AgentPool
from mooring.testing import wait_for
from mooring.testing.daemon import server
from mooring.testing.model import Model


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with Talk() as running:
        yield running


@pytest.fixture(params=KINDS)
async def pool(
    request: pytest.FixtureRequest, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[AgentPool]:
    """Of two agents of one kind, ``a`` and ``b``, and ``d`` which connects to ``alone`` itself if its kind can."""
    monkeypatch.setenv("STORY_SECRET", story.SECRET)
    async with request.param(tmp_path, model) as agent, scripted(model) as chat:
        config = story.config({"a": agent, "b": agent})
        if request.param in PROGRAMS:
            config["mcp_servers"]["alone"] = server()
            config["agents"]["d"] = {**agent, "via": "direct", "mcp_servers": ["alone"]}
        async with mooring.open(config) as m, m.agents(models={"scripted": chat}) as pool:
            yield pool


def _bare(tool: str) -> str:
    """A tool's name without what some programs put before it."""
    return tool.removeprefix("mcp__mooring__").removeprefix("mcp_mooring_")


async def test_it_has_the_tools_of_all_layers(pool: AgentPool, model: Model) -> None:
    """A24 A26 A27 A28 A29: tools of all layers are offered, calls go through, and results come back."""
    async with pool.agent("a") as agent:
        result = await agent.run('%call pooled_echo {"n": 1}\n%call teamed_counter\n%call mine_counter\n%say finished')
        assert result.text.strip().endswith("finished"), result
        assert result.stop == "done"
        assert [_bare(call) for call in result.calls] == ["pooled_echo", "teamed_counter", "mine_counter"]
        offered = {_bare(name) for turn in model.turns for name in turn.offered}
        assert {"pooled_echo", "teamed_echo", "mine_echo"} <= offered
        assert not any(name.startswith(("spare_", "keyed_")) for name in offered)
        results = [text for turn in model.turns for text in turn.results]
        assert any('"n": 1' in text or '"n":1' in text for text in results), results


async def test_its_functions_come_and_go(pool: AgentPool, model: Model) -> None:
    """A24 A26 A27 A28 A29 A30: a tool added while it runs can be called in the next run; one that was removed
    is refused."""
    async with pool.agent("a") as agent:
        await agent.tools.add(story.greet)
        result = await agent.run('%call own_greet {"name": "you"}\n%say ok', deps="d1")
        assert [_bare(call) for call in result.calls] == ["own_greet"], result
        assert f"hello you from {agent.name}, deps d1" in model.turns[-1].results[-1]
        await agent.tools.add(story.later)
        result = await agent.run('%call own_later {"number": 41}\n%say ok')
        assert "42" in model.turns[-1].results[-1]
        await agent.tools.remove("later")
        await agent.run("%say ok")
        before = len(model.turns)
        await agent.run('%call own_later {"number": 41}\n%say ok')  # some programs go on offering what was removed
        told = [text for turn in model.turns[before:] for text in turn.results[-1:] if "own_later" not in text]
        assert not any("42" in text for text in told), told
        refusal = await agent._seat.called("own_later", {"number": 41}, "1")
        assert refusal["isError"]
        assert "no such tool" in refusal["content"][0]["text"]


async def test_changes_of_the_layers_arrive(pool: AgentPool, model: Model) -> None:
    """A23 A24 A26 A27 A28 A29: pool, team, agent and session changes arrive in the next run."""
    async with pool.agent("a") as agent:

        async def offered() -> set[str]:
            await agent.run("%say looked")
            return {_bare(name) for name in model.turns[-1].offered}

        await pool.add_server("spare")
        assert "spare_echo" in await offered()
        await pool.remove_server("spare")
        await pool.team("other").add(agent.name)
        result = await agent.run("%call keyed_env\n%say ok")
        assert [_bare(call) for call in result.calls] == ["keyed_env"]
        assert story.SECRET in model.turns[-1].results[-1], "the server itself has its secret"
        await pool.team("other").remove(agent.name)
        await pool.team("crew").remove(agent.name)
        await agent.add_server("spare")
        result = await agent.run("%call spare_counter\n%say ok")
        assert [_bare(call) for call in result.calls] == ["spare_counter"]


async def test_two_do_not_mix_and_no_secret_is_in_sight(
    pool: AgentPool, model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A6 A26 A27 A28 A30: keys and secrets are nowhere but where they belong, and nothing is left."""
    before = story.running()
    await pool.team("other").add("a")
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(pool.agent(name)) for name in ("a", "b")]
        for agent in both:
            await agent.tools.add(story.greet)
        script = '%call own_greet {"name": "n"}\n%wait 0.3\n%call own_greet {"name": "n"}\n%say done'
        results = await asyncio.gather(*(agent.run(script, deps=f"<{agent.name}-only>") for agent in both))
        assert [result.stop for result in results] == ["done", "done"]
        for one, other in (("a", "b"), ("b", "a")):
            turns = [turn for turn in model.turns if f"hello n from {one}" in str(turn.body)]
            assert turns
            assert not any(f"<{other}-only>" in str(turn.body) for turn in turns)
        await both[0].run("%call keyed_counter\n%say ok")
        keyed = {pid for pid in story.running() if story.SECRET in story.read(pid, "environ")}
        assert len(keyed) == 1, "the server that needs the secret has it in its environment, nobody else"
        keys = [agent._seat.key.key for agent in both]
        for key in keys:
            assert story.places_of(key, tmp_path, story.running() | {os.getpid()}) == []
        assert story.places_of(story.SECRET, tmp_path, story.running() - keyed - {os.getpid()}) == []
    assert not any(secret in caplog.text for secret in (*keys, story.SECRET))
    for key in keys:
        assert story.places_of(key, tmp_path, set()) == []
    programs = story.running() - before
    left = {pid for pid in programs if not any(name in story.read(pid, "cmdline") for name in ("mooring", "echo"))}
    assert left == set(), [story.read(pid, "cmdline") for pid in left]


async def test_a_run_can_be_cancelled(pool: AgentPool, model: Model) -> None:
    """A run can be cancelled, and the agent goes on."""
    async with pool.agent("a") as agent:
        before = len(model.turns)
        task = asyncio.create_task(agent.run("%call mine_counter\n%wait 30\n%say never"))
        await wait_for(lambda: len(model.turns) > before + 1, timeout=20)
        await agent.cancel()
        assert (await task).stop == "cancelled"
        result = await agent.run("%say still here")
        assert result.text.strip().endswith("still here"), result


@pytest.mark.parametrize("pool", PROGRAMS, indirect=True)
async def test_it_connects_to_a_direct_server_itself(pool: AgentPool) -> None:
    """A25 A26 A27 A28: a server that the agent connects to itself is not started by Mooring."""
    async with pool.agent("d") as agent:
        result = await agent.run('%call sleep {"seconds": 0}\n%say ok')
        assert len(result.calls) == 1, result
        workspace = agent._seat.ground.plan.workspaces[agent.workspace]
        assert "alone" not in {mount.server for mount in workspace.mounts}
        assert "alone" not in {variant.server for variant in agent._seat.ground.plan.variants.values()}
