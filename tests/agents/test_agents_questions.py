"""What servers ask during a call, for every kind of agent with its real program: it reaches the handler of the run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import agent_kinds
import agent_story as story
import mooring
from agent_kinds import Kind
from mooring.agents.agent import Agent
from mooring.agents.handler import Approval, Handler, Verdict
from mooring.testing.daemon import server
from mooring.testing.model import Model

SERVERS = {"asking": server("--era", "modern"), "alone": server("--era", "legacy")}


class Person:
    """Answers everything, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(params["message"])
        return {"action": "accept", "content": {"name": "Ada"}}

    async def sample(self, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append("sample")
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "sampled by hand"}}

    async def approve(self, approval: Approval) -> Verdict:
        return "allow"


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with agent_kinds.Talk() as running:
        yield running


@asynccontextmanager
async def opened(
    kind: Kind, model: Model, folder: Path, handler: Handler, server: str, via: str
) -> AsyncGenerator[Agent]:
    """An agent of a kind with one server."""
    async with agent_kinds.scripted(model) as chat, kind(folder, model) as table:
        config = {"mcp_servers": SERVERS, "agents": {"a": {**table, "via": via, "mcp_servers": [server]}}}
        async with mooring.open(config) as m, m.agents(handler, {"scripted": chat}) as pool, pool.agent("a") as agent:
            if via == "mooring":
                await story.offers(agent, f"{server}_elicit")
            yield agent


async def told(agent: Agent, model: Model, tool: str) -> str:
    """What the model was told when it called a tool."""
    result = await agent.run(f"%call {tool}\n%say ok")
    assert result.text.strip().endswith("ok"), result
    return next(text for turn in reversed(model.turns) for text in turn.results)


@pytest.mark.parametrize("kind", agent_kinds.KINDS, ids=lambda kind: kind.__name__)
async def test_what_a_server_of_mooring_asks_is_answered_by_the_handler(
    kind: Kind, model: Model, tmp_path: Path
) -> None:
    """A18 A30: elicitation, sampling and roots, whatever the agent's own MCP client can do."""
    person = Person()
    handler = Handler(elicit=person.elicit, sample=person.sample, approve=person.approve, roots=("/tmp",))
    async with opened(kind, model, tmp_path, handler, "asking", "mooring") as agent:
        assert "Ada" in await told(agent, model, "asking_elicit")
        assert "sampled by hand" in await told(agent, model, "asking_sample")
        assert "file:///tmp" in await told(agent, model, "asking_roots")
    assert person.asked == ["Who are you?", "sample"]


async def test_the_model_of_a_native_agent_answers_in_the_run_that_it_drives(model: Model, tmp_path: Path) -> None:
    """A18"""
    async with opened(agent_kinds.native, model, tmp_path, Handler(), "asking", "mooring") as agent:
        said = await told(agent, model, "asking_sample")
        assert '"model":"scripted"' in said.replace(" ", "")
        assert "decline" in await told(agent, model, "asking_elicit") or "not declare" in model.turns[-1].results[-1]


def asking(kind: Kind) -> Kind:
    """The same agent, set up to put questions to its host where it can be told not to."""

    @asynccontextmanager
    async def opened(folder: Path, model: Model) -> AsyncGenerator[dict[str, Any]]:
        async with kind(folder, model) as table:
            config = folder / "user" / ".codex" / "config.toml"
            if config.exists():
                text = config.read_text().replace('approval_policy = "never"', 'approval_policy = "on-request"')
                config.write_text(text)
                table["env"].pop("INITIAL_AGENT_MODE", None)
            yield table

    return opened


ELICITING = [kind for kind in agent_kinds.PROGRAMS if kind is not agent_kinds.gemini_acp]


@pytest.mark.parametrize("kind", ELICITING, ids=lambda kind: kind.__name__)
async def test_a_form_of_a_direct_server_reaches_the_handler_through_the_program(
    kind: Kind, model: Model, tmp_path: Path
) -> None:
    """A18 A25: the program is the server's client, and passes the question on."""
    person = Person()
    handler = Handler(elicit=person.elicit, approve=person.approve)
    async with opened(asking(kind), model, tmp_path, handler, "alone", "direct") as agent:
        assert "Ada" in await told(agent, model, "elicit")
    assert person.asked == ["Who are you?"]


@pytest.mark.parametrize("kind", agent_kinds.PROGRAMS, ids=lambda kind: kind.__name__)
async def test_what_a_program_cannot_be_asked_a_direct_server_is_told(kind: Kind, model: Model, tmp_path: Path) -> None:
    """The stated limit: no program passes sampling on, and Gemini CLI no forms. Through Mooring they work."""
    handler = Handler(sample=Person().sample, approve=Person().approve)
    async with opened(kind, model, tmp_path, handler, "alone", "direct") as agent:
        assert "sampled by hand" not in await told(agent, model, "sample")
        assert "Ada" not in await told(agent, model, "elicit")
