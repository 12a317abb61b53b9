"""Gemini CLI without a terminal: ``gemini -p``, ``gemini mcp list``."""

from __future__ import annotations

import json
from typing import Any

from real_clients.place import Place, Ran, Reach
from real_clients.programs import program

NAME = "Gemini CLI"
KEY = "MOORING_KEY"
"""The variable that holds the key: the settings refer to it."""
QUIET: dict[str, Any] = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}


def server(way: Reach) -> dict[str, Any]:
    """An entry of ``mcpServers``. Without a terminal, only the tools of trusted servers are offered."""
    if way.url:
        return {"httpUrl": way.url, "headers": {"Authorization": f"Bearer ${KEY}"}, "trust": True}
    command, *args = way.command
    return {"command": command, "args": args, "env": way.env, "trust": True}


class Gemini:
    """The program, in a place of its own, with the scripted model at ``model_url``, and Mooring as its server unless
    ``way`` is None."""

    def __init__(self, place: Place, way: Reach | None, model_url: str = "http://127.0.0.1:9") -> None:
        self._program = program(NAME)
        self._place = place
        servers = {"mcpServers": {"mooring": server(way)}} if way else {}
        place.write(".gemini/settings.json", json.dumps({**QUIET, **servers}))
        self._env = {
            "GEMINI_API_KEY": "dummy",
            "GOOGLE_GEMINI_BASE_URL": model_url,
            "GEMINI_TELEMETRY_ENABLED": "false",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_CLI_NO_RELAUNCH": "true",  # else it starts itself again, in a process that survives
            KEY: way.key if way else "",
        }

    async def ask(self, prompt: str) -> list[dict[str, Any]]:
        """The events of one prompt."""
        argv = [*self._program, "-m", "gemini-2.5-flash", "-o", "stream-json", "-p", prompt]
        return (await self._place.run(argv, **self._env)).lines

    async def mcp(self, *arguments: str) -> Ran:
        """Run ``gemini mcp ...``; what it prints goes to stderr."""
        return await self._place.run([*self._program, "mcp", *arguments], **self._env)
