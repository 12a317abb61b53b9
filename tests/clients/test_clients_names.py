"""Tools with odd and long names, through clients that each change names in a way of their own."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest

from mooring.testing.daemon import daemon, server
from mooring.testing.model import Model
from real_clients import claude_code, codex, gemini
from real_clients.place import Place, Reach, reach

NAMES = (
    *("plain", "dotted.name", "pa/th", "a-b", "a_b", "ünïcode name", "UPPER", "1st"),
    *("x" * 56, f"{'m' * 30}1{'n' * 25}", f"{'m' * 30}2{'n' * 25}"),  # 60 characters with the prefix
    *(f"{'l' * 90}1", f"{'l' * 90}2"),
)


async def ask_claude_code(place: Place, model: Model, way: Reach, prompt: str) -> None:
    await claude_code.ClaudeCode(place, model.url).ask(way, prompt)


async def ask_codex(place: Place, model: Model, way: Reach, prompt: str) -> None:
    program = codex.Codex(place, model.url, way.key)
    program.configure({"mooring": codex.server(way)})
    await program.ask(prompt)


async def ask_gemini(place: Place, model: Model, way: Reach, prompt: str) -> None:
    await gemini.Gemini(place, way, model.url).ask(prompt)


@pytest.fixture
async def named(tmp_path: Path) -> AsyncGenerator[Reach]:
    """The way to a workspace in which a server has tools of these names; each answers its name."""
    home = tmp_path / "mooring"
    home.mkdir()
    flags = [word for name in NAMES for word in ("--tool", name)]
    async with daemon(home, {"box": server(*flags)}) as running:
        yield await reach(running, "http")


@pytest.mark.parametrize("ask", [ask_claude_code, ask_codex, ask_gemini])
async def test_every_tool_is_offered_and_each_call_reaches_its_own(
    named: Reach, place: Place, model: Model, ask: Callable[..., Awaitable[None]]
) -> None:
    """R35, A20: names as they are advertised survive what clients do to them."""
    await ask(place, model, named, "%tools")
    offered = [tool.name for tool in model.turns[-1].tools if "Answers its name" in tool.description]
    assert len(offered) == len(NAMES)
    first, *others = offered
    await ask(place, model, named, "\n".join((f"%call {first}", *(f"%and {name}" for name in others))))
    answers = [json.loads(result[result.index("{") : result.rindex("}") + 1]) for result in model.turns[-1].results]
    assert sorted(answer["tool"] for answer in answers) == sorted(NAMES)
