"""What is left of an agent, while it runs and afterwards: no key and no secret in sight, no file, no process.

All that an agent's program and Mooring write goes into one folder here, temporary files too, and every process of this
machine is looked at.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

import agent_kinds
import agent_story as story
import mooring
from agent_kinds import Kind
from mooring.testing import wait_for
from mooring.testing.daemon import server
from mooring.testing.model import Model
from mooring.testing.processes import alive

OWN = "the-agents-own-s3cret"
"""What the agent's program is given; only it may have it."""


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with agent_kinds.Talk() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where everything is written."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("STORY_SECRET", story.SECRET)
    monkeypatch.setenv("AGENT_SECRET", OWN)
    return tmp_path


def everybody() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}


def shown(secret: str, folder: Path) -> list[str]:
    """Where a secret can be seen: command lines, environments, files."""
    return story.places_of(secret, folder, everybody())


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="it looks into /proc, which only Linux has")
@pytest.mark.parametrize("kind", agent_kinds.KINDS, ids=lambda kind: kind.__name__)
async def test_no_key_and_no_secret_is_in_sight_and_nothing_is_left(
    kind: Kind, model: Model, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A6 A12 A26 A27 A28 A30"""
    before = story.running()
    async with agent_kinds.scripted(model) as chat, kind(folder, model) as table:
        env = {**table.get("env", {}), "TMPDIR": str(folder / "tmp")}
        own = {"secrets": {"OWN": {"env": "AGENT_SECRET"}}}
        program = {"env": env, **own} if kind in agent_kinds.PROGRAMS else {}
        config = {
            "mcp_servers": {"keyed": {**server(), "secrets": {"SECRET": {"env": "STORY_SECRET"}}}},
            "agents": {"a": {**table, **program, "mcp_servers": ["keyed"]}},
        }
        async with mooring.open(config) as m, m.agents(models={"scripted": chat}) as pool:
            async with pool.agent("a") as agent:
                key = agent._seat.key.key
                await agent.tools.add(story.later)
                await story.offers(agent, "keyed_counter")
                result = await agent.run('%call keyed_counter\n%call own_later {"number": 1}\n%say ok')
                assert result.text.strip().endswith("ok"), result
                assert shown(key, folder) == []
                servers = [place for place in shown(story.SECRET, folder) if place.endswith("/environ")]
                assert len(servers) == 1, "the server has it in its environment, nobody else"
                assert servers == shown(story.SECRET, folder)
                assert all(place.endswith("/environ") for place in shown(OWN, folder)), shown(OWN, folder)
                holders = {int(place.split("/")[2]) for place in shown(OWN, folder)}
                assert bool(holders) is (kind in agent_kinds.PROGRAMS)
                there = story.running() - before
                strangers = {pid for pid in holders - there if alive(pid)}  # some end between the two looks
                assert not strangers, "the agent's program and its children have it, nobody else"
            assert key not in "".join(model_text(model))
            logs = [line for name in ("keyed", "agent a") for line in m._control._app.logs.last(name, 10_000)]
            for secret in (key, story.SECRET, OWN):
                assert secret not in caplog.text
                assert not any(secret in line for line in logs)
                assert [place for place in shown(secret, folder) if not place.endswith("/environ")] == []
            assert shown(OWN, folder) == [], "the program is gone"
    await wait_for(lambda: not story.running() - before)
    assert not list((folder / "tmp").glob("mooring-*"))


def model_text(model: Model) -> list[str]:
    """All that the model was sent."""
    return [str(turn.body) for turn in model.turns]


LIVE = (agent_kinds.native, agent_kinds.ag_ui, agent_kinds.claude, agent_kinds.gemini_acp)
"""Kinds that see a change in the middle of a run."""


@pytest.mark.parametrize("kind", LIVE, ids=lambda kind: kind.__name__)
async def test_a_tool_that_comes_during_a_run_can_be_called_in_it(kind: Kind, model: Model, folder: Path) -> None:
    """A24 A30"""
    async with AsyncExitStack() as stack:
        chat = await stack.enter_async_context(agent_kinds.scripted(model))
        table = await stack.enter_async_context(kind(folder, model))
        m = await stack.enter_async_context(mooring.open({"agents": {"a": table}}))
        pool = await stack.enter_async_context(m.agents(models={"scripted": chat}))
        agent = await stack.enter_async_context(pool.agent("a"))

        async def grow() -> str:
            """Adds a tool"""
            await agent.tools.add(story.later)
            return "grown"

        async def rest() -> str:
            """Lets a program take the changed list up"""
            with suppress(TimeoutError):
                await asyncio.wait_for(agent._seat.looked.wait(), 3)
            await asyncio.sleep(0.5)
            return "rested"

        await agent.tools.add(grow, rest)
        await agent.run('%call own_grow\n%call own_rest\n%call own_rest\n%call own_later {"number": 41}\n%say ok')
        assert "42" in model.turns[-1].results[-1]
