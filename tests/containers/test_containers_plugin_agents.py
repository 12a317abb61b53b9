"""A real Claude agent with a scripted model, and the tool of a plugin: the server in a container of Mooring's beside an
agent on this machine, and in the very container that the agent is in."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sysconfig
from pathlib import Path

from container_kit import LIMIT, Kept
from voice import DISTRIBUTION, HERE, INSIDE, LENT, installed, listed, table

from mooring.plugins import container_input
from mooring.testing import containers
from mooring.testing.model import Model
from mooring.testing.plugins import Site
from real_clients.claude_code import QUIET, ClaudeCode
from real_clients.place import Place, reach
from real_clients.programs import program

CALL = '%call transcribe_voice {"path": "a.wav"}'
RUNNER = """
import asyncio, json, sys
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
from mooring.plugins import merge

async def main() -> None:
    input_data = json.load(sys.stdin)
    options = ClaudeAgentOptions(
        mcp_servers={}, cli_path="/claude", tools=[], allowed_tools=["mcp__voice"], setting_sources=[],
        permission_mode="dontAsk", model="claude-sonnet-4-5", strict_mcp_config=True,
    )
    merge(options.mcp_servers, input_data)
    async for message in query(prompt=input_data["prompt"], options=options):
        if isinstance(message, ResultMessage):
            print(message.result)

asyncio.run(main())
"""


async def test_r29_r30_claude_code_calls_the_tool_of_a_plugin_in_a_container(
    engine: str, kept: Kept, site: Site, tmp_path: Path
) -> None:
    """R29 R30: it runs end to end; uninstall makes the tools disappear."""
    installed(site)
    image, lent = table(engine)
    tables = {"plugins": {"image": image}}
    async with Model() as model, kept.daemon(tmp_path / "home", {"voice": lent}, tables=tables) as daemon:
        claude = ClaudeCode(Place(tmp_path), model.url)
        way = await reach(daemon, "http")
        await listed(daemon)
        said = await claude.ask(way, CALL)
        heard = json.loads(said["result"].removeprefix("got:"))
        assert (heard["heard"], heard["code"]) == ("a.wav", f"{INSIDE}/mooring_plugin_voice/mcp.py")
        assert "mcp__mooring__voice_transcribe_voice" in model.turns[0].offered
        (row,) = await daemon.rows("voice")
        assert row.container == f"{engine}:{kept.names(daemon.home).pop()}"

        site.remove(DISTRIBUTION)
        await daemon.mooring.reload()
        said = await claude.ask(way, CALL)
        assert "a.wav" not in said["result"]


async def test_r29_an_agent_in_a_container_of_its_own_starts_the_server_beside_itself(
    engine: str, site: Site, tmp_path: Path
) -> None:
    """R29: what the agent is given names the plugin's server and its mounts; uninstall makes them disappear."""
    claude = program("Claude Code")[0]
    package = installed(site)
    runner = tmp_path / "runner.py"
    runner.write_text(RUNNER)
    state = str(tmp_path / "state")

    async def asked(model: Model, prompt: str) -> str:
        given = {**container_input(state=state), "prompt": prompt}
        lent = containers.program("/usr/bin/env", "python3", "/runner.py")
        mounts = [f"{mount['source']}:{mount['target']}:ro" for mount in given["mounts"]]
        mounts += [*lent["volumes"], f"{claude}:/claude:ro", f"{runner}:/runner.py:ro"]
        mounts.append(f"{sysconfig.get_path('purelib')}:{LENT}:ro")
        env = {**QUIET, "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "dummy", "HOME": "/tmp", "PATH": HERE}
        env["PYTHONPATH"] = f"{lent['env']['PYTHONPATH']}:{LENT}"
        flags = [f"--volume={mount}" for mount in mounts] + [f"--env={key}={value}" for key, value in env.items()]
        argv = [engine, "run", "--rm", "--interactive", "--network=host", *flags, containers.IMAGE, *lent["args"]]
        return await asyncio.to_thread(agent, argv, json.dumps(given))

    def agent(argv: list[str], given: str) -> str:
        name = f"mooring-testing-agent-{os.getpid()}"
        try:
            argv[2:2] = ["--name", name]
            done = subprocess.run(argv, input=given, capture_output=True, text=True, timeout=LIMIT * 2, check=False)
        finally:
            subprocess.run([engine, "rm", "--force", name], capture_output=True, timeout=LIMIT, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    async with Model() as model:
        heard = json.loads((await asked(model, CALL)).removeprefix("got:"))
        assert (heard["heard"], heard["code"]) == ("a.wav", f"{INSIDE}/{package.name}/mcp.py")
        assert heard["path"].split(":")[0] == INSIDE
        assert heard["path"].endswith(f":{LENT}")
        site.remove(DISTRIBUTION)
        assert await asked(model, "%tools") == "offered:"
