"""What tests of the registry share: a home with a catalog of its own, and a client over ``mooring registry``."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mooring.testing import StdioClient
from mooring.testing.daemon import Daemon
from mooring.testing.speech import Era

LIMIT = 60.0
TRUSTED = '[catalog.sources.ours]\nkind = "files"\npath = "entries"\ntrusted = true\n'
STRANGE = '[catalog.sources.theirs]\nkind = "files"\npath = "others"\n'


def furnish(home: Path, url: str, *, more: str = "") -> Path:
    """A home whose catalog has entries of a trusted source and of another, all of them reached at ``url``."""
    home.mkdir(exist_ok=True)
    remote = {"type": "streamable-http", "url": url}
    header = {"name": "X-Token", "isRequired": True, "isSecret": True}
    team = {"isRequired": True, "description": "Your team.", "placeholder": "red"}
    asking = {**remote, "url": f"{url}?team={{team}}", "variables": {"team": team}}
    free = {**remote, "headers": [{"name": "X-Colour", "default": "red"}]}
    secret = {**remote, "headers": [header]}
    both = {**asking, "headers": [header]}
    ours = {"far": [remote], "asking": [asking], "secret": [secret], "free": [free], "both": [both]}
    _entries(home / "entries" / "ours.json", ours)
    _entries(home / "others" / "theirs.json", {"odd": [remote], "curious": [asking]})
    (home / "mooring.toml").write_text(f'[gateway]\nlisten = ["127.0.0.1:0"]\n{TRUSTED}{STRANGE}{more}')
    return home


def _entries(file: Path, remotes: dict[str, list[Any]]) -> None:
    """A list of server.json documents."""
    file.parent.mkdir()
    listed = [
        {"name": name, "description": f"Does {name} things.", "version": "1", "remotes": found}
        for name, found in remotes.items()
    ]
    file.write_text(json.dumps(listed))


@asynccontextmanager
async def registry(running: Daemon, era: Era = "legacy", **more: Any) -> AsyncGenerator[StdioClient]:
    """An MCP client over ``mooring registry``."""
    argv = [sys.executable, "-m", "mooring", "registry"]
    async with StdioClient(argv, era=era, env=running.env, timeout=LIMIT, **more) as client:
        await client.open()
        yield client


def text(result: dict[str, Any]) -> str:
    """What a result says."""
    return "\n".join(block.get("text", "") for block in result["content"])


def kind(result: dict[str, Any]) -> str:
    """The kind of a failure; "" of a success."""
    return result.get("_meta", {}).get("mooring/error", {}).get("kind", "") if result.get("isError") else ""


async def tools(client: StdioClient) -> set[str]:
    """The names of all tools that do not belong to the registry itself."""
    listed = (await client.result("tools/list"))["tools"]
    return {tool["name"] for tool in listed if not tool["name"].startswith("registry_")}
