"""Tools that say of themselves that they destroy something: a person is asked, whatever way the call comes."""

from __future__ import annotations

import sys
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
from mooring.testing.model import Model

FILES = """
from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("files")

@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def wipe() -> str:
    return "wiped"

@server.tool(annotations=ToolAnnotations(destructive_hint=False))
def note() -> str:
    return "noted"

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look() -> str:
    return "looked"

@server.tool()
def plain() -> str:
    return "plain"

server.run("stdio")
"""
ALL = ["files_wipe", "files_note", "files_look", "files_plain"]
SCRIPT = "\n".join(f"%call {tool}" for tool in ALL) + "\n%say ok"


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with Model() as running:
        yield running


@asynccontextmanager
async def opened(kind: Kind, model: Model, folder: Path, confirm: str, handler: Handler) -> AsyncGenerator[Agent]:
    script = folder / "files.py"
    script.write_text(FILES)
    async with agent_kinds.scripted(model) as chat, kind(folder, model) as table:
        config: dict[str, Any] = {
            "mcp_servers": {"files": {"command": sys.executable, "args": [str(script)]}},
            "agents": {"a": {**table, "confirm": confirm, "mcp_servers": ["files"]}},
        }
        async with mooring.open(config) as m, m.agents(handler, {"scripted": chat}) as pool, pool.agent("a") as agent:
            await story.offers(agent, "files_wipe")
            yield agent


@pytest.mark.parametrize("kind", [agent_kinds.native, agent_kinds.claude, agent_kinds.codex_app_server])
@pytest.mark.parametrize("verdict", ["allow", "skip"])
async def test_only_the_destructive_tool_is_confirmed(
    kind: Kind, verdict: Verdict, model: Model, tmp_path: Path
) -> None:
    """A31: in process and over the endpoint; the reason is told, and what is refused is not called."""
    asked: list[Approval] = []

    async def approve(approval: Approval) -> Verdict:
        asked.append(approval)
        return verdict

    async with opened(kind, model, tmp_path, "per_tool", Handler(approve=approve)) as agent:
        result = await agent.run(SCRIPT)
    assert result.text.strip().endswith("ok"), result
    assert [(approval.tool, approval.why) for approval in asked] == [
        ("files_wipe", "the tool says that it may destroy something")
    ]
    said = " ".join(text for turn in model.turns for text in turn.results)
    assert ("wiped" in said) is (verdict == "allow")
    assert ("not approved" in said) is (verdict == "skip")
    assert all(word in said for word in ("noted", "looked", "plain"))


@pytest.mark.parametrize(("confirm", "count"), [("never", 0), ("always", 4)])
async def test_an_agent_that_confirms_nothing_or_everything_takes_no_hints(
    confirm: str, count: int, model: Model, tmp_path: Path
) -> None:
    """A31"""
    asked: list[str] = []

    async def approve(approval: Approval) -> Verdict:
        asked.append(approval.tool)
        return "allow"

    async with opened(agent_kinds.native, model, tmp_path, confirm, Handler(approve=approve)) as agent:
        assert (await agent.run(SCRIPT)).text == "ok"
    assert asked == ALL[:count]
