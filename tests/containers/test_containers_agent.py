"""An agent in a container, given an env file and nothing else, reaches its workspace through Mooring's endpoint."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_kit import LIMIT, Kept

from contained_agent import HOST, ContainedAgent, contained_agent
from mooring.testing import wait_for
from mooring.testing.daemon import server, write_config

ROOMS = {"team": {"mcp_servers": ["notes"]}, "other": {"mcp_servers": ["notes"]}}


@pytest.fixture
def agent(engine: str, tmp_path: Path) -> Iterator[ContainedAgent]:
    with contained_agent(engine, tmp_path / "handed") as made:
        yield made


async def test_an_agent_in_a_container_reads_an_env_file_and_calls_its_tools(
    agent: ContainedAgent, kept: Kept, tmp_path: Path
) -> None:
    """R26: ``mooring env --file``, the address and the name of the guide, the tools of one workspace, no way in
    without the key."""
    listening = {"listen": [f"{agent.machine}:0"], "allowed_hosts": [HOST]}
    servers = {"notes": server()}
    async with kept.daemon(tmp_path / "home", servers, ROOMS, **listening) as daemon:
        port = daemon.endpoint.rpartition(":")[2].removesuffix("/mcp")
        told = {**listening, "engine": agent.engine, "public_url": f"http://{HOST}:{port}"}
        write_config(daemon.home / "mooring.toml", servers, ROOMS, told)
        assert (await daemon.mooring.reload()).applied
        file = agent.folder / "team.env"
        code, _, err = await daemon.command("env", "-w", "team", "--file", str(file))
        assert code == 0, err
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        found = await agent.work("team.env", "MOORING_URL", "MOORING_API_KEY", "notes_echo")
        assert "notes_echo" in found["tools"]
        assert found["called"]["notes_echo"]["structuredContent"] == {"text": "from inside"}
        assert found["without a key"] == 401
        (key,) = [row for row in await daemon.mooring.key_list("team") if row.name == "env"]

        async def audited() -> bool:
            return key.id in (await daemon.command("audit", "--json", "-w", "team", "--tool", "notes_echo"))[1]

        await wait_for(audited, LIMIT, 0.1)
