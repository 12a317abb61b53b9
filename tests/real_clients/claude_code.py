"""Claude Code without a terminal: ``claude -p``, ``claude mcp``."""

from __future__ import annotations

import json
from typing import Any

from real_clients.place import Place, Reach
from real_clients.programs import program

NAME = "Claude Code"
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
}
"""Without these it looks for updates and reports."""


def server(way: Reach) -> dict[str, Any]:
    """An entry of ``mcpServers``."""
    if way.url:
        return {"type": "http", "url": way.url, "headers": {"Authorization": f"Bearer {way.key}"}}
    command, *args = way.command
    return {"type": "stdio", "command": command, "args": args, "env": way.env}


class ClaudeCode:
    """The program, in a place of its own, with the scripted model at ``model_url``."""

    def __init__(self, place: Place, model_url: str = "http://127.0.0.1:9") -> None:
        self._program = program(NAME)
        self._place = place
        self._env = {**QUIET, "ANTHROPIC_BASE_URL": model_url, "ANTHROPIC_API_KEY": "dummy"}

    async def mcp(self, *arguments: str) -> str:
        """What ``claude mcp ...`` prints. It exits with 0 when a server cannot be reached, too."""
        ran = await self._place.run([*self._program, "mcp", *arguments], **self._env)
        assert ran.code == 0, ran.err + ran.out
        return ran.out

    async def ask(self, way: Reach, prompt: str, *options: str, **env: str) -> dict[str, Any]:
        """The result of one prompt, with Mooring as the only server, ``mooring``, and no tools of its own."""
        servers = self._place.write("mcp.json", json.dumps({"mcpServers": {"mooring": server(way)}}))
        flags = ["-p", "--output-format", "json", "--model", "claude-sonnet-4-5", "--permission-mode", "dontAsk"]
        flags += ["--strict-mcp-config", "--mcp-config", str(servers), "--allowedTools", "mcp__mooring"]
        argv = [*self._program, *flags, *(options or ("--tools", "")), "--", prompt]
        return (await self._place.run(argv, **self._env, **env)).data
