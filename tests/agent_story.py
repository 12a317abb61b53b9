"""Servers, layers and functions for the tests of agents: somebody for each layer, and a secret to look for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.agents.tools import Context
from mooring.testing.daemon import server

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
