"""Servers, layers and functions for the tests of agents: somebody for each layer, and a secret to look for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mooring.agents.agent import Agent
from mooring.agents.tools import Context
from mooring.testing.daemon import server
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


def greet(name: str, context: Context) -> str:
    """Greets somebody"""
    return f"hello {name} from {context.agent}, deps {context.deps}, call {'known' if context.call_id else 'unknown'}"


def later(number: int) -> int:
    """Adds one"""
    return number + 1


FUNCTIONS = [later]


async def offers(agent: Agent, tool: str) -> None:
    """Wait until an agent's view has a tool: a server may take its time to start."""
    async with asyncio.timeout(60):
        while tool not in {listed["name"] for listed in await agent._seat.listed()}:
            await asyncio.sleep(0.05)


def places_of(secret: str, folder: Path, pids: set[int]) -> list[str]:
    """Files below a folder, and processes, in which a secret is found."""
    found = [f"/proc/{pid}/{what}" for pid in pids for what in ("cmdline", "environ") if secret in read(pid, what)]
    for file in folder.rglob("*"):
        with suppress(OSError):  # a program took it away again, or it is no file
            if secret.encode() in file.read_bytes():
                found.append(str(file))
    return found


def read(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def running() -> set[int]:
    """Processes below this one."""
    return {pid for pid in descendants(os.getpid()) if alive(pid)}
