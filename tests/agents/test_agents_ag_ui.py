"""Agents of type ag_ui: a pydantic-ai server on a port of its own, with the scripted model."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from openai import AsyncOpenAI
from pydantic_ai import Agent as Pydantic
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import agent_story as story
import mooring
from mooring.agents.pool import AgentPool
from mooring.testing import wait_for
from mooring.testing.model import Model


def bare(name: str) -> str:
    return name


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with Model() as running:
        yield running


@asynccontextmanager
async def serving(model: Model, seen: list[str]) -> AsyncGenerator[str]:
    """The URL of an agent with one tool of its own, ``dice``."""
    async with AsyncOpenAI(base_url=f"{model.url}/v1", api_key="k", max_retries=0) as client:
        scripted = OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client))
        agent = Pydantic(scripted)

        @agent.tool_plain
        def dice() -> int:
            """Rolls"""
            return 4

        async def run(request: Request) -> Response:
            seen.append(request.headers.get("x-token", ""))
            return await AGUIAdapter.dispatch_request(request, agent=agent)

        app = Starlette(routes=[Route("/", run, methods=["POST"])])
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
            task = asyncio.create_task(server.serve([sock]))
            await wait_for(lambda: server.started)
            try:
                yield f"http://127.0.0.1:{sock.getsockname()[1]}/"
            finally:
                server.should_exit = True
                await task


@pytest.fixture
def tokens() -> list[str]:
    """What the server was sent in ``X-Token``."""
    return []


@pytest.fixture
async def pool(model: Model, tokens: list[str], monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[AgentPool]:
    monkeypatch.setenv("STORY_SECRET", story.SECRET)
    monkeypatch.setenv("AGENT_TOKEN", "for the agent")
    async with serving(model, tokens) as url:
        agent = {
            "type": "ag_ui",
            "url": url,
            "headers": {"X-Token": "{TOKEN}"},
            "secrets": {"TOKEN": {"env": "AGENT_TOKEN"}},
        }
        async with mooring.open(story.config({"a": agent, "b": agent})) as m, m.agents() as pool:
            yield pool


async def test_it_has_the_tools_of_all_layers(pool: AgentPool, model: Model, tokens: list[str]) -> None:
    """A24 A29"""
    async with pool.agent("a") as agent:
        await story.layers_and_calls(agent, model, bare)
    assert set(tokens) == {"for the agent"}


async def test_its_functions_come_and_go(pool: AgentPool, model: Model) -> None:
    """A24 A29 A30"""
    async with pool.agent("a") as agent:
        await story.own_functions_come_and_go(agent, model, bare)


async def test_changes_of_the_layers_arrive(pool: AgentPool, model: Model) -> None:
    """A23 A24 A29"""
    async with pool.agent("a") as agent:
        await story.layers_change(pool, agent, model, bare)


async def test_tools_of_the_server_stay_the_servers(pool: AgentPool, model: Model) -> None:
    """A29"""
    async with pool.agent("a") as agent:
        result = await agent.run("%call dice\n%and mine_counter\n%call mine_counter\n%say ok")
        assert result.calls == ("dice", "mine_counter", "mine_counter")
        assert result.text == "ok"
        said = [text for turn in model.turns for text in turn.results]
        assert "4" in said


async def test_two_do_not_mix_and_no_secret_is_in_sight(
    pool: AgentPool, model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A6 A30"""
    await story.two_beside_each_other_and_no_secret_in_sight(pool, model, [tmp_path], caplog)


async def test_a_run_can_be_cancelled(pool: AgentPool, model: Model) -> None:
    async with pool.agent("a") as agent:
        await story.cancelled(agent, model)
