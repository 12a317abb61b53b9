"""Agents of type codex, with the real program and the scripted model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import agent_story as story
import mooring
from mooring.agents.pool import AgentPool
from mooring.testing.model import Model
from real_clients.codex import NAME, configuration
from real_clients.place import Place
from real_clients.programs import program


def bare(name: str) -> str:
    return name.removeprefix("mcp__mooring__")


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with Model() as running:
        yield running


@pytest.fixture
async def pool(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[AgentPool]:
    monkeypatch.setenv("STORY_SECRET", story.SECRET)
    place = Place(tmp_path)
    place.write(".codex/config.toml", configuration(model.url, {}))
    agent = {
        "type": "codex",
        "command": program(NAME),
        "cwd": str(place.work),
        "env": {"HOME": str(place.home), "CODEX_HOME": str(place.home / ".codex"), "MODEL_KEY": "dummy"},
    }
    async with mooring.open(story.with_direct(story.config({"a": agent, "b": agent}), agent)) as m, m.agents() as pool:
        yield pool


async def test_it_has_the_tools_of_all_layers(pool: AgentPool, model: Model) -> None:
    """A24 A27"""
    async with pool.agent("a") as agent:
        await story.layers_and_calls(agent, model, bare)


async def test_its_functions_come_and_go(pool: AgentPool, model: Model) -> None:
    """A24 A27 A30"""
    async with pool.agent("a") as agent:
        await story.own_functions_come_and_go(agent, model, bare)


async def test_changes_of_the_layers_arrive(pool: AgentPool, model: Model) -> None:
    """A23 A24 A27"""
    async with pool.agent("a") as agent:
        await story.layers_change(pool, agent, model, bare)


async def test_two_do_not_mix_and_no_secret_is_in_sight(
    pool: AgentPool, model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A6 A27 A30"""
    await story.two_beside_each_other_and_no_secret_in_sight(pool, model, [tmp_path], caplog)


async def test_a_run_can_be_cancelled(pool: AgentPool, model: Model) -> None:
    async with pool.agent("a") as agent:
        await story.cancelled(agent, model)


async def test_it_connects_to_a_direct_server_itself(pool: AgentPool, model: Model) -> None:
    """A25 A27"""
    async with pool.agent("d") as agent:
        await story.direct(agent, model, "sleep")
