"""An agent in a container, given an env file and nothing else, reaches its workspace through Mooring's endpoint."""

from __future__ import annotations

import asyncio
import json
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from container_kit import LIMIT, Kept

from mooring.testing import containers, wait_for
from mooring.testing.daemon import server, write_config

HERE = Path(__file__).parent
HOST = "host.docker.internal"
"""What the guide calls the machine from inside a container."""
ROOMS = {"team": {"mcp_servers": ["notes"]}, "other": {"mcp_servers": ["notes"]}}


class Agent:
    """A container in which an agent would run, on the engine's usual network."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.engine = engine
        self.name = f"agent-{secrets.token_hex(6)}"
        table = containers.python()
        mounts = [*table["volumes"], f"{HERE}:/agent:ro", f"{folder}:/handed:ro"]
        self.machine = gateway(engine)
        containers.command(
            engine,
            *("run", "--detach", "--name", self.name, "--user", "0:0", "--add-host", f"{HOST}:{self.machine}"),
            *(part for mount in mounts for part in ("--volume", mount)),
            *(part for key, value in table["env"].items() for part in ("--env", f"{key}={value}")),
            *(table["image"], *table["args"], "-c", "import time; time.sleep(600)"),
        )
        self.python = table["args"][0]

    def run(self, *arguments: str) -> Any:
        """What a Python program in it prints, as JSON."""
        return json.loads(containers.command(self.engine, "exec", self.name, self.python, *arguments))


def gateway(engine: str) -> str:
    """The machine's address on the engine's usual network."""
    where = ("podman", "{{(index .Subnets 0).Gateway}}") if engine == "podman" else ("bridge", "{{json .IPAM.Config}}")
    said = containers.command(engine, "network", "inspect", where[0], "--format", where[1]).strip()
    return said if engine == "podman" else next(each["Gateway"] for each in json.loads(said) if "." in each["Gateway"])


@pytest.fixture
def agent(engine: str, tmp_path: Path) -> Iterator[Agent]:
    folder = tmp_path / "handed"
    folder.mkdir()
    made = Agent(engine, folder)
    try:
        yield made
    finally:
        containers.remove(engine, [made.name])


async def test_an_agent_in_a_container_reads_an_env_file_and_calls_its_tools(
    agent: Agent, kept: Kept, tmp_path: Path
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
        file = tmp_path / "handed" / "team.env"
        code, _, err = await daemon.command("env", "-w", "team", "--file", str(file))
        assert code == 0, err
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        found = await asyncio.to_thread(agent.run, "/agent/agent_in_container.py", "/handed/team.env", "notes_echo")
        assert "notes_echo" in found["tools"]
        assert found["called"] == {"text": "from inside"}
        assert found["without a key"] == 401
        (key,) = [row for row in await daemon.mooring.key_list("team") if row.name == "env"]

        async def audited() -> bool:
            return key.id in (await daemon.command("audit", "--json", "-w", "team", "--tool", "notes_echo"))[1]

        await wait_for(audited, LIMIT, 0.1)
