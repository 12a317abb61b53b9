"""What is true of every kind of agent: one story, told by the tests of each with its real program."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mooring.agents.agent import Agent
from mooring.agents.pool import AgentPool
from mooring.agents.tools import Context
from mooring.testing import wait_for
from mooring.testing.daemon import server
from mooring.testing.model import Model
from mooring.testing.processes import alive, descendants

SECRET = "s3cret-of-a-server"
"""What the server ``keyed`` is given, and nobody else may see."""
TOOLS = {"allow": ["echo", "counter", "env", "elicit"]}


def config(agents: Mapping[str, Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """A server for each layer: pool, team ``crew`` (with ``a``), the agent ``a``, and ``spare`` for nobody yet."""
    servers = {
        name: {
            **server(),
            "tools": TOOLS,
            **({"secrets": {"SECRET": {"env": "STORY_SECRET"}}} if name == "keyed" else {}),
        }
        for name in ("pooled", "teamed", "mine", "spare", "keyed")
    }
    return {
        "mcp_servers": servers,
        "agent_pool": {"mcp_servers": ["pooled"]},
        "teams": {
            "crew": {"members": [next(iter(agents))], "mcp_servers": ["teamed"]},
            "other": {"mcp_servers": ["keyed"]},
        },
        "agents": {
            name: {**table, "mcp_servers": ["mine"] if not number else []}
            for number, (name, table) in enumerate(agents.items())
        },
        **more,
    }


def with_direct(config: dict[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """The same with one more agent, ``d``, which connects to ``alone`` itself."""
    config["mcp_servers"]["alone"] = server()
    config["agents"]["d"] = {**table, "via": "direct", "mcp_servers": ["alone"]}
    return config


def greet(name: str, context: Context) -> str:
    """Greets somebody"""
    return f"hello {name} from {context.agent}, deps {context.deps}, call {'known' if context.call_id else 'unknown'}"


def later(number: int) -> int:
    """Adds one"""
    return number + 1


async def layers_and_calls(agent: Agent, model: Model, bare: Callable[[str], str]) -> None:
    """Tools of all layers are offered, calls go through, and results come back."""
    result = await agent.run('%call pooled_echo {"n": 1}\n%call teamed_counter\n%call mine_counter\n%say finished')
    assert result.text.strip().endswith("finished"), result
    assert result.stop == "done"
    assert [bare(call) for call in result.calls] == ["pooled_echo", "teamed_counter", "mine_counter"]
    offered = {bare(name) for turn in model.turns for name in turn.offered}
    assert {"pooled_echo", "teamed_echo", "mine_echo"} <= offered
    assert not any(name.startswith(("spare_", "keyed_")) for name in offered)
    results = [text for turn in model.turns for text in turn.results]
    assert any('"n": 1' in text or '"n":1' in text for text in results), results


async def own_functions_come_and_go(agent: Agent, model: Model, bare: Callable[[str], str]) -> None:
    """A tool added while it runs is callable in the next run; one that was removed is refused."""
    await agent.tools.add(greet)
    result = await agent.run('%call own_greet {"name": "you"}\n%say ok', deps="d1")
    assert [bare(call) for call in result.calls] == ["own_greet"], result
    assert f"hello you from {agent.name}, deps d1" in model.turns[-1].results[-1]
    await agent.tools.add(later)
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


async def layers_change(pool: AgentPool, agent: Agent, model: Model, bare: Callable[[str], str]) -> None:
    """Pool, team, agent and session changes arrive in the next run."""

    async def offered() -> set[str]:
        await agent.run("%say looked")
        return {bare(name) for name in model.turns[-1].offered}

    await pool.add_server("spare")
    assert "spare_echo" in await offered()
    await pool.remove_server("spare")
    await pool.team("other").add(agent.name)
    result = await agent.run("%call keyed_env\n%say ok")
    assert [bare(call) for call in result.calls] == ["keyed_env"]
    assert SECRET in model.turns[-1].results[-1], "the server itself has its secret"
    await pool.team("other").remove(agent.name)
    await pool.team("crew").remove(agent.name)
    await agent.add_server("spare")
    result = await agent.run("%call spare_counter\n%say ok")
    assert [bare(call) for call in result.calls] == ["spare_counter"]


def places_of(secret: str, folders: list[Path], pids: set[int]) -> list[str]:
    """Files and processes in which a secret is found."""
    found = [f"/proc/{pid}/{what}" for pid in pids for what in ("cmdline", "environ") if secret in _read(pid, what)]
    for folder in folders:
        found += [str(file) for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    return found


def _read(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def running() -> set[int]:
    """Processes below this one."""
    return {pid for pid in descendants(os.getpid()) if alive(pid)}


FUNCTIONS = [later]


async def two_beside_each_other_and_no_secret_in_sight(
    pool: AgentPool, model: Model, folders: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Two agents at the same time do not mix; keys and secrets are nowhere but where they belong; nothing is left."""
    before = running()
    await pool.team("other").add("a")
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(pool.agent(name)) for name in ("a", "b")]
        for agent in both:
            await agent.tools.add(greet)
        script = '%call own_greet {"name": "n"}\n%wait 0.3\n%call own_greet {"name": "n"}\n%say done'
        results = await asyncio.gather(*(agent.run(script, deps=f"<{agent.name}-only>") for agent in both))
        assert [result.stop for result in results] == ["done", "done"]
        for one, other in (("a", "b"), ("b", "a")):
            turns = [turn for turn in model.turns if f"hello n from {one}" in str(turn.body)]
            assert turns
            assert not any(f"<{other}-only>" in str(turn.body) for turn in turns)
        await both[0].run("%call keyed_counter\n%say ok")
        keyed = {pid for pid in running() if SECRET in _read(pid, "environ")}
        assert len(keyed) == 1, "the server that needs the secret has it in its environment, nobody else"
        keys = [agent._seat.key.key for agent in both]
        for key in keys:
            assert places_of(key, folders, running() | {os.getpid()}) == []
        assert places_of(SECRET, folders, running() - keyed - {os.getpid()}) == []
    assert not any(secret in caplog.text for secret in (*keys, SECRET))
    for key in keys:
        assert places_of(key, folders, set()) == []
    programs = running() - before
    left = {pid for pid in programs if not any(name in _read(pid, "cmdline") for name in ("mooring", "echo"))}
    assert left == set(), [_read(pid, "cmdline") for pid in left]


async def cancelled(agent: Agent, model: Model) -> None:
    """A run can be cancelled, and the agent goes on."""
    before = len(model.turns)
    task = asyncio.create_task(agent.run("%call mine_counter\n%wait 30\n%say never"))
    await wait_for(lambda: len(model.turns) > before + 1, timeout=20)
    await agent.cancel()
    assert (await task).stop == "cancelled"
    result = await agent.run("%say still here")
    assert result.text.strip().endswith("still here"), result


async def direct(agent: Agent, model: Model, tool: str) -> None:
    """A server that the agent connects to itself is not started by Mooring."""
    result = await agent.run(f'%call {tool} {{"seconds": 0}}\n%say ok')
    assert len(result.calls) == 1, result
    workspace = agent._seat.ground.plan.workspaces[agent.workspace]
    assert "alone" not in {mount.server for mount in workspace.mounts}
    assert "alone" not in {variant.server for variant in agent._seat.ground.plan.variants.values()}
