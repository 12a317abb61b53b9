"""What is particular to agents of type ag_ui: their headers, and their own tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from pydantic_ai import Agent as Pydantic

import agent_story as story
import mooring
from agent_kinds import scripted, serving
from mooring.agents.agent import Agent
from mooring.testing.model import Model

TOKEN = "for the agent"


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with Model() as running:
        yield running


@pytest.fixture
def tokens() -> list[str]:
    """What the server was sent in ``X-Token``."""
    return []


@pytest.fixture
async def agent(model: Model, tokens: list[str], monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Agent]:
    """It has one tool of its own, ``dice``."""
    monkeypatch.setenv("STORY_SECRET", story.SECRET)
    monkeypatch.setenv("AGENT_TOKEN", TOKEN)

    def dice() -> int:
        """Rolls"""
        return 4

    async with scripted(model) as chat, serving(Pydantic(chat, tools=[dice]), tokens) as url:
        secrets = {"TOKEN": {"env": "AGENT_TOKEN"}}
        table = {"type": "ag_ui", "url": url, "headers": {"X-Token": "{TOKEN}"}, "secrets": secrets}
        async with mooring.open(story.config({"a": table})) as m, m.agents() as pool, pool.agent("a") as agent:
            yield agent


async def test_tools_of_the_server_stay_the_servers(agent: Agent, model: Model, tokens: list[str]) -> None:
    """A29"""
    result = await agent.run("%call dice\n%and mine_counter\n%call mine_counter\n%say ok")
    assert result.calls == ("dice", "mine_counter", "mine_counter")
    assert result.text == "ok"
    said = [text for turn in model.turns for text in turn.results]
    assert "4" in said


async def test_its_headers_hold_its_secrets(agent: Agent, tokens: list[str]) -> None:
    """A29"""
    await agent.run("%call mine_echo\n%say ok")
    assert set(tokens) == {TOKEN}
