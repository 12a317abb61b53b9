"""The whole way, with the real LiteLLM: an agent, LiteLLM's endpoint, Mooring's, a server that starts on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from litellm_api import Api
from litellm_rig import rig
from litellm_stack import MASTER_KEY, Database, Proxy, missing_columns
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from contained_agent import HOST, ContainedAgent, contained_agent
from mooring.errors import Unavailable
from mooring.export.litellm_client import LiteLLMClient
from mooring.testing import containers
from mooring.testing.daemon import Daemon, daemon, launched, server, write_config
from mooring.testing.waiting import wait_for
from raw_http_server import RawServer

pytestmark = [pytest.mark.litellm, pytest.mark.timeout(300)]
Both = tuple[Database, Proxy]
SERVERS = {
    "docs-search": server("--tool", "find"),
    "ledger": server("--tool", "balance", idle_timeout=1),
    "tickets": server("--tool", "open_ticket"),
    "browser": server("--tool", "click", sharing="session"),
}
WORKSPACES = {
    "sales": {"mcp_servers": ["docs-search", "ledger", "browser"]},
    "support": {"mcp_servers": ["docs-search", "tickets"]},
}


@pytest.fixture
async def api(real: Both) -> AsyncGenerator[Api]:
    """The real one, empty."""
    api = Api(real[1].url, MASTER_KEY)
    yield api
    await api.clear()


@pytest.fixture
def home(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a daemon that may use the real one."""
    monkeypatch.setenv("LITELLM_MASTER_KEY", api.master_key)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture(params=["podman", "docker"])
def contained(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ContainedAgent]:
    """An agent in a container."""
    if why := containers.lacks(request.param):
        pytest.skip(why)
    with contained_agent(request.param, tmp_path / "handed") as made:
        yield made


@asynccontextmanager
async def agent(api: Api, key: str, path: str = "/mcp") -> AsyncGenerator[Client]:
    """An MCP client at LiteLLM's endpoint."""
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(api.url + path, http_client=http)
        async with Client(transport, mode="legacy") as client:
            yield client


async def tools(api: Api, key: str, path: str = "/mcp") -> set[str]:
    """The tools that a key lists, without those that every echo server has."""
    async with agent(api, key, path) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
    own = {"find", "balance", "open_ticket", "click"}
    return {name for name in names if name.rpartition("-")[2] in own}


async def variables(running: Daemon, workspace: str, file: Path) -> dict[str, str]:
    """What ``mooring env --litellm`` hands to an agent."""
    code, _, complaint = await running.command("env", "-w", workspace, "--litellm", "--file", str(file))
    assert code == 0, complaint
    assert file.stat().st_mode & 0o777 == 0o600
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def settings(api: Api, **more: Any) -> dict[str, Any]:
    return {"litellm": {"url": api.url, "master_key": {"env": "LITELLM_MASTER_KEY"}, **more}}


async def test_agents_reach_their_own_servers_through_litellm_and_no_others(
    api: Api, home: Path, tmp_path: Path
) -> None:
    """R19: list and call, down to a server that starts for the call and idles afterwards."""
    async with daemon(home, SERVERS, WORKSPACES, **settings(api)) as running:
        code, out, complaint = await running.command("litellm", "sync")  # perhaps the one at boot was faster
        assert code == 0, complaint
        assert await running.command("litellm", "sync", "--dry-run") == (0, "skipped" + out.partition("skipped")[2], "")
        sales = await variables(running, "sales", tmp_path / "sales.env")
        support = await variables(running, "support", tmp_path / "support.env")
        assert sales["LITELLM_MCP_URL"] == f"{api.url}/mcp"
        a, b = sales["LITELLM_MCP_KEY"], support["LITELLM_MCP_KEY"]

        assert await tools(api, a) == {"docs_search-find", "ledger-balance"}
        assert await tools(api, b) == {"docs_search-find", "tickets-open_ticket"}

        async def idle() -> bool:
            return {row.state for row in await running.rows("ledger")} <= {"stopped"}

        await wait_for(idle, 30)
        async with agent(api, a) as client:
            answer = await client.call_tool("ledger-balance", {})
            assert not answer.is_error
            assert "balance" in str(answer.content)
            assert not (await client.call_tool("docs_search-find", {})).is_error
        await wait_for(idle, 30)

        async with agent(api, b) as client:
            for name in ("ledger-balance", "balance", "mooring-ledger-balance"):
                assert (await client.call_tool(name, {})).is_error
        assert {row.state for row in await running.rows("ledger")} <= {"stopped"}
        with pytest.raises((MCPError, httpx2.HTTPError, ExceptionGroup)):
            await tools(api, b, "/ledger/mcp")

        status, _ = await api("POST", "/chat/completions", {"model": "any", "messages": []}, key=a)
        assert status in (401, 403)  # the key is for MCP alone
        assert "sk-mooring-" not in running.output
        assert api.master_key not in running.output


async def test_an_agent_in_a_container_reads_an_env_file_and_reaches_its_own_servers_through_litellm(
    api: Api, home: Path, contained: ContainedAgent, tmp_path: Path
) -> None:
    """R19 R26: by the name of the guide, with nothing but the file; Mooring listens on the loopback alone."""
    told = f"http://{HOST}:{api.url.rpartition(':')[2]}"
    async with daemon(home, SERVERS, WORKSPACES, **settings(api, public_url=told)) as running:
        await running.command("litellm", "sync")
        handed = await variables(running, "sales", contained.folder / "agent.env")
        assert handed["LITELLM_MCP_URL"] == f"{told}/mcp"
        await variables(running, "support", tmp_path / "support.env")

        async def idle() -> bool:
            return {row.state for row in await running.rows("ledger")} <= {"stopped"}

        await wait_for(idle, 30)
        mine, others = "ledger-balance", ("tickets-open_ticket", "open_ticket")
        found = await contained.work("agent.env", *handed, mine, *others)
        assert {"docs_search-find", mine} <= {*found["tools"]}
        assert not {name for name in found["tools"] if name.startswith("tickets")}
        assert not found["called"][mine].get("isError")
        assert "balance" in str(found["called"][mine]["content"])
        assert all(found["called"][name]["isError"] for name in others)
        assert found["without a key"] == 401

        async def audited() -> bool:
            return bool((await running.command("audit", "--json", "-w", "sales", "--tool", "balance"))[1])

        await wait_for(audited, 30, 0.1)
        assert await running.command("audit", "--json", "--tool", "open_ticket") == (0, "", "")


async def test_a_changed_configuration_reaches_litellm_by_itself(api: Api, home: Path) -> None:
    """R18: a workspace's last server is removed, and its key opens nothing any more."""
    async with daemon(home, {"time": server("--tool", "find")}, {"a": {"mcp_servers": ["time"]}}, **settings(api)) as d:

        async def state(name: str) -> bool:
            return [row.name for row in (await d.mooring.litellm_status()).servers] == ([name] if name else [])

        await wait_for(lambda: state("time"), 30)
        key = (await d.mooring.litellm_access("a")).key
        assert await tools(api, key) == {"time-find"}
        file = home / "mooring.toml"
        file.write_text(file.read_text().replace('mcp_servers = ["time"]', "mcp_servers = []"))
        await d.mooring.reload()
        await wait_for(lambda: state(""), 30)
        assert await api.servers() == {}
        with pytest.raises((MCPError, httpx2.HTTPError, ExceptionGroup)):
            await tools(api, key)


async def test_a_remote_gets_its_credential_whoever_calls_it(
    api: Api, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R21: LiteLLM itself, or Mooring for it."""
    monkeypatch.setenv("REMOTE_TOKEN", "token of the remote")
    async with RawServer("legacy") as remote:
        servers = {"remote": {"url": remote.url, "auth": {"env": "REMOTE_TOKEN"}}}
        write_config(home / "mooring.toml", servers, **settings(api, via="upstream"))
        async with launched(home) as running:
            for via in ("upstream", "mooring"):
                write_config(home / "mooring.toml", servers, **settings(api, via=via))
                await running.mooring.reload()
                await running.mooring.litellm_sync()
                key = (await running.mooring.litellm_access("w")).key
                async with agent(api, key) as client:
                    assert not (await client.call_tool("remote-echo", {"text": via})).is_error
                headers = remote.last("tools/call").headers
                assert headers["authorization"] == "Bearer token of the remote"
                assert headers["user-agent"].startswith("mooring/") == (via == "mooring")


async def test_an_emptied_database_is_filled_by_one_sync_and_agents_keep_their_keys(
    real: Both, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R19"""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    async with rig(api, tmp_path) as made:
        await made.sync()
        keys = [await made.key(workspace) for workspace in ("a", "b")]
        real[0].empty("litellm")

        async def noticed() -> bool:
            """LiteLLM looks into its database from time to time."""
            return await api.servers() == {}

        await wait_for(noticed, 120, 1)
        assert len(await made.sync()) == 6
        assert await made.sync() == []
        assert [await made.key(workspace) for workspace in ("a", "b")] == keys


async def test_a_sync_that_litellm_did_not_survive_is_finished_by_the_next(
    real: Both, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R19 R20: nothing leaks, nothing comes twice."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    _, proxy = real
    put_team = LiteLLMClient.put_team

    async def killed(self: LiteLLMClient, *arguments: Any, **more: Any) -> None:
        await asyncio.to_thread(proxy.stop)
        await put_team(self, *arguments, **more)

    async with rig(api, tmp_path) as made:
        with monkeypatch.context() as patch:
            patch.setattr(LiteLLMClient, "put_team", killed)
            with pytest.raises(Unavailable, match="cannot be reached"):
                await made.sync()
        status = await made.litellm.status(made.offer)
        assert (status.state, status.synced_at) == ("failing", None)
        await asyncio.to_thread(proxy.start)
        assert [kind for _, kind, _ in await made.sync()] == ["team", "team", "key", "key"]
        assert await made.sync() == []
        assert len(await api.servers()) == 2


def test_all_tables_are_there(real: Both) -> None:
    """Else LiteLLM would lose rows in silence."""
    assert missing_columns(real[0]) == set()
