"""A container in which an agent would run, for tests: it has a folder with what it was handed, and no more."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mooring.testing import containers

PROGRAM = Path(__file__).parent / "contained_agent_program.py"
HOST = "host.docker.internal"
"""What the guide calls the machine from inside a container."""


class ContainedAgent:
    """On the engine's usual network. ``folder``: what it is handed. ``machine``: this machine's address there."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.machine = _gateway(engine)
        self.name = f"agent-{secrets.token_hex(6)}"
        table = containers.python()
        self._python = table["args"][0]
        mounts = [*table["volumes"], f"{PROGRAM}:/agent.py:ro", f"{folder}:/handed:ro"]
        containers.command(
            engine,
            *("run", "--detach", "--name", self.name, "--user", "0:0", "--add-host", f"{HOST}:{self.machine}"),
            *(part for mount in mounts for part in ("--volume", mount)),
            *(part for key, value in table["env"].items() for part in ("--env", f"{key}={value}")),
            *(table["image"], *table["args"], "-c", "import time; time.sleep(600)"),
        )

    async def work(self, file: str, url: str, key: str, *tools: str) -> dict[str, Any]:
        """List the tools behind an env file that it was handed, and call these; see ``contained_agent_program``."""
        command = ("exec", self.name, self._python, "/agent.py", f"/handed/{file}", url, key, *tools)
        return json.loads(await asyncio.to_thread(containers.command, self.engine, *command))


@contextmanager
def contained_agent(engine: str, folder: Path) -> Generator[ContainedAgent]:
    """As long as the block lasts; makes ``folder``."""
    folder.mkdir()
    agent = ContainedAgent(engine, folder)
    try:
        yield agent
    finally:
        containers.remove(engine, [agent.name])


def _gateway(engine: str) -> str:
    """The machine's address on the engine's usual network."""
    where = ("podman", "{{(index .Subnets 0).Gateway}}") if engine == "podman" else ("bridge", "{{json .IPAM.Config}}")
    said = containers.command(engine, "network", "inspect", where[0], "--format", where[1]).strip()
    return said if engine == "podman" else next(each["Gateway"] for each in json.loads(said) if "." in each["Gateway"])
