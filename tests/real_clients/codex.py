"""Codex: ``codex exec``, ``codex mcp`` and ``codex app-server``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import tomlkit

from real_clients.place import Place, Ran, Reach
from real_clients.programs import program

NAME = "Codex"
KEY = "MOORING_KEY"
"""The variable that holds the key: Codex's configuration names it."""


def server(way: Reach) -> dict[str, Any]:
    """A table of ``mcp_servers``."""
    asks = {"default_tools_approval_mode": "approve"}
    if way.url:
        return {"url": way.url, "bearer_token_env_var": KEY, **asks}
    command, *args = way.command
    return {"command": command, "args": args, "env": way.env, **asks}


def configuration(model_url: str, servers: dict[str, Any]) -> str:
    """A ``config.toml`` that reaches nothing but the scripted model and these servers, and asks nobody."""
    provider = {
        "name": "scripted",
        "base_url": f"{model_url}/v1",
        "wire_api": "responses",
        "env_key": "MODEL_KEY",
        "request_max_retries": 0,
        "stream_max_retries": 0,
    }
    return tomlkit.dumps(
        {
            "model": "scripted",
            "model_provider": "scripted",
            "approval_policy": "never",
            "sandbox_mode": "danger-full-access",
            "check_for_update_on_startup": False,
            "analytics": {"enabled": False},
            "features": {"apps": False, "plugins": False},
            "model_providers": {"scripted": provider},
            "mcp_servers": servers,
        }
    )


class Codex:
    """The program, in a place of its own, with the scripted model at ``model_url``."""

    def __init__(self, place: Place, model_url: str = "http://127.0.0.1:9", key: str = "") -> None:
        self._program = program(NAME)
        self._place = place
        self._model_url = model_url
        self._env = {"CODEX_HOME": str(place.home / ".codex"), "MODEL_KEY": "dummy", KEY: key}
        self.configure({})

    def configure(self, servers: dict[str, Any]) -> None:
        """Write ``config.toml`` anew."""
        self._place.write(".codex/config.toml", configuration(self._model_url, servers))

    async def mcp(self, *arguments: str) -> Ran:
        """Run ``codex mcp ...``."""
        return await self._place.run([*self._program, "mcp", *arguments], **self._env)

    async def ask(self, prompt: str) -> list[dict[str, Any]]:
        """The finished items of one prompt to ``codex exec``."""
        argv = [*self._program, "exec", "--json", "--skip-git-repo-check", "--ephemeral", prompt]
        events = (await self._place.run(argv, **self._env)).lines
        return [event["item"] for event in events if event["type"] == "item.completed"]

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[AppServer]:
        """``codex app-server`` on pipes, after its handshake."""
        async with self._place.started([*self._program, "app-server"], **self._env) as process:
            server = AppServer(process)
            hello = {"clientInfo": {"name": "mooring-tests", "version": "1"}, "capabilities": {"experimentalApi": True}}
            await server.request("initialize", hello)
            server.send({"method": "initialized"})
            yield server


class AppServer:
    """Lines of JSON-RPC without the member ``jsonrpc``. One request at a time; notifications are kept."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self._last = 0
        self.notes: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        """Write one line."""
        self._in.write(json.dumps(message).encode() + b"\n")

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request."""
        self._last += 1
        self.send({"id": self._last, "method": method, "params": params})
        while (message := await self._next()).get("id") != self._last:
            self.notes.append(message)
        assert "result" in message, message
        return message["result"]

    async def note(self, method: str) -> dict[str, Any]:
        """The params of the first notification of this kind that has not been taken yet."""
        while True:
            for note in self.notes:
                if note["method"] == method:
                    self.notes.remove(note)
                    return note["params"]
            self.notes.append(await self._next())

    async def _next(self) -> dict[str, Any]:
        line = await self._out.readline()
        assert line, "the app-server has ended"
        return json.loads(line)
