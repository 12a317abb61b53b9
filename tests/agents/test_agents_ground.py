"""What is left of an agent in the parts that it stood on: nothing, whatever fails, and again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import mooring
from mooring.errors import ConfigError, StoreError
from mooring.serve.app import App
from mooring.testing.daemon import server
from mooring.testing.http_client import HttpClient

AGENT = {"type": "native", "model": "test"}
CONFIG: dict[str, Any] = {"mcp_servers": {"echo": server()}, "agents": {"a": AGENT}}


@asynccontextmanager
async def opened(config: Any = CONFIG) -> AsyncGenerator[tuple[mooring.Mooring, App]]:
    async with asyncio.timeout(60), mooring.open(config) as m:
        yield m, m._control._app


async def test_what_an_agent_was_given_stays_when_something_else_changes() -> None:
    """As the registry does when it adds a server."""
    async with opened() as (m, app), m.agents() as pool, pool.agent("a") as agent:
        await agent.add_server("echo")
        assert any(mount.server == "echo" for mount in app.plan.workspaces["agent/a"].mounts)
        await app.adjust()
        assert any(mount.server == "echo" for mount in app.plan.workspaces["agent/a"].mounts)


async def test_the_endpoint_of_agents_is_open_in_each_of_several_blocks() -> None:
    async with opened() as (m, app):
        before = len(app.on_applied), len(app.keys.on_revoked)
        for _ in range(2):
            async with m.agents() as pool, pool.agent("a") as agent:
                url = await agent._seat.ground.endpoint()
                async with HttpClient(url, token=agent._seat.key.key) as client:
                    assert await client.open()
            assert (app.endpoint, app.public_url) == ("", "")
        assert (len(app.on_applied), len(app.keys.on_revoked)) == before


async def test_an_agent_opens_and_closes_while_the_configuration_is_not_valid(tmp_path: Path) -> None:
    file = tmp_path / "mooring.toml"
    file.write_text('[agents.a]\ntype = "native"\nmodel = "test"\n')
    async with opened(file) as (m, app), m.agents() as pool:
        async with pool.agent("a"):
            file.write_text("[[[")
        async with pool.agent("a") as agent:
            await agent.tools.add(lambda_)
            assert await agent.refresh_tools() == ["own_lambda_"]
            with pytest.raises(ConfigError):
                await agent.add_server("echo")
        assert app.additions.functions == {}
        assert "own:agent/a" not in app.plan.variants


def lambda_() -> str:
    """Says something."""
    return "something"


async def test_an_agent_that_could_not_be_opened_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (m, app), m.agents() as pool:
        agent = pool.agent("a")
        adjust, failing = app.adjust, [True]

        async def broken() -> None:
            if failing:
                failing.clear()
                raise StoreError("the disk is full")
            await adjust()

        monkeypatch.setattr(app, "adjust", broken)
        with pytest.raises(StoreError):
            await agent.__aenter__()
        assert app.keys.rows() == []
        assert app.relay.stewards == {}
        assert app.additions.functions == {}
        async with agent:
            assert list(app.relay.stewards) == ["agent/a"]
