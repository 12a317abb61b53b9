"""Agents of type native: pydantic-ai, with the scripted model behind a real HTTP client."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import agent_story as story
import mooring
from mooring.agents.pool import AgentPool
from mooring.testing.model import Model

AGENT = {"type": "native", "model": "scripted", "prompt": "You are brief."}


def bare(name: str) -> str:
    return name


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with Model() as running:
        yield running


@pytest.fixture
async def pool(model: Model, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[AgentPool]:
    monkeypatch.setenv("STORY_SECRET", story.SECRET)
    config = story.config({"a": AGENT, "b": AGENT})
    async with AsyncOpenAI(base_url=f"{model.url}/v1", api_key="k", max_retries=0) as client:
        scripted = OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client))
        async with mooring.open(config) as m, m.agents(models={"scripted": scripted}) as pool:
            yield pool


async def test_it_has_the_tools_of_all_layers(pool: AgentPool, model: Model) -> None:
    """A24"""
    async with pool.agent("a") as agent:
        await story.layers_and_calls(agent, model, bare)


async def test_its_functions_come_and_go(pool: AgentPool, model: Model) -> None:
    """A24 A30"""
    async with pool.agent("a") as agent:
        await story.own_functions_come_and_go(agent, model, bare)


async def test_changes_of_the_layers_arrive(pool: AgentPool, model: Model) -> None:
    """A23 A24"""
    async with pool.agent("a") as agent:
        await story.layers_change(pool, agent, model, bare)


async def test_two_do_not_mix_and_no_secret_is_in_sight(
    pool: AgentPool, model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A6 A30"""
    await story.two_beside_each_other_and_no_secret_in_sight(pool, model, [tmp_path], caplog)


async def test_a_run_can_be_cancelled(pool: AgentPool, model: Model) -> None:
    async with pool.agent("a") as agent:
        await story.cancelled(agent, model)
