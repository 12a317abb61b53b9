"""Codex behind the Agent Client Protocol, with the real programs and the scripted model.

Another Codex than that of type codex, by way of an adapter with ways of its own: it tells of a call's server and tool
apart, takes up changed servers some time after a session was resumed, and has the model make titles meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest

import agent_story as story
import mooring
from mooring.agents import acp_servers
from mooring.agents.pool import AgentPool
from mooring.testing.model import Model
from real_clients import codex
from real_clients.place import Place
from real_clients.programs import program

TITLE = "very short title"
OFFERED = frozenset({"box_echo"})


def bare(name: str) -> str:
    return name.removeprefix("mcp__mooring__")


class Talk:
    """The scripted model without the turns in which it was asked for a title."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def turns(self) -> list[object]:
        return [turn for turn in self._model.turns if TITLE not in str(turn.body)]


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    async with Model() as running:
        yield running


@pytest.fixture
def talk(model: Model) -> Model:
    return cast("Model", Talk(model))


@pytest.fixture
async def pool(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[AgentPool]:
    monkeypatch.setenv("STORY_SECRET", story.SECRET)
    place = Place(tmp_path)
    place.write(".codex/config.toml", codex.configuration(model.url, {}))
    env = {"HOME": str(place.home), "CODEX_HOME": str(place.home / ".codex"), "MODEL_KEY": "dummy"}
    quiet = {"NO_BROWSER": "1", "INITIAL_AGENT_MODE": "agent-full-access"}
    agent = {"type": "acp", "cwd": str(place.work), "command": program("Codex ACP"), "env": {**env, **quiet}}
    async with mooring.open(story.with_direct(story.config({"a": agent, "b": agent}), agent)) as m, m.agents() as pool:
        yield pool


async def test_it_has_the_tools_of_all_layers(pool: AgentPool, talk: Model) -> None:
    """A24 A28"""
    async with pool.agent("a") as agent:
        await story.layers_and_calls(agent, talk, bare)


async def test_its_functions_come_and_go(pool: AgentPool, talk: Model) -> None:
    """A24 A28 A30"""
    async with pool.agent("a") as agent:
        await story.own_functions_come_and_go(agent, talk, bare)


async def test_changes_of_the_layers_arrive(pool: AgentPool, talk: Model) -> None:
    """A23 A24 A28"""
    async with pool.agent("a") as agent:
        await story.layers_change(pool, agent, talk, bare)


async def test_two_do_not_mix_and_no_secret_is_in_sight(
    pool: AgentPool, talk: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A6 A28 A30"""
    await story.two_beside_each_other_and_no_secret_in_sight(pool, talk, [tmp_path], caplog)


async def test_a_run_can_be_cancelled(pool: AgentPool, talk: Model) -> None:
    async with pool.agent("a") as agent:
        await story.cancelled(agent, talk)


async def test_it_connects_to_a_direct_server_itself(pool: AgentPool, talk: Model) -> None:
    """A25 A28"""
    async with pool.agent("d") as agent:
        await story.direct(agent, talk, "sleep")


@pytest.mark.parametrize(
    ("title", "given", "name"),
    [
        ("mcp.mooring.box_echo", {"server": "mooring", "tool": "box_echo", "arguments": {}}, "box_echo"),
        ("mcp.mooring.box_echo", {"server": "other", "tool": "box_echo", "arguments": {}}, ""),
        ("mcp.mooring.gone", {"server": "mooring", "tool": "gone", "arguments": {}}, ""),
        ("rm -rf /", {"server": "mooring", "tool": "box_echo", "arguments": {}}, ""),
        ("mcp.mooring.box_echo", {"server": "mooring", "tool": "box_echo", "arguments": {}, "command": "rm"}, ""),
        ("mcp.mooring.box_echo", {"command": "mcp.mooring.box_echo"}, ""),
    ],
)
def test_a_command_is_not_taken_for_a_call_of_ours(title: str, given: dict[str, object], name: str) -> None:
    """A31"""
    assert acp_servers.told(title, given, OFFERED) == name
