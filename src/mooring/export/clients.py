"""How each client writes a server down: its file, the place in it, and the shape of an entry. Pure.

Called by ``export.documents`` and the ``export`` verb. Shapes as the clients of late 2026 read them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from mooring.errors import ConfigError

NAME = "mooring"
"""What the entry is called in every client."""


class Command(msgspec.Struct, frozen=True):
    """Mooring as a command that a client starts: ``mooring stdio``; holds no key."""

    program: str
    args: tuple[str, ...]
    env: dict[str, str] = {}


class Address(msgspec.Struct, frozen=True):
    """Mooring as a URL, and the key that opens it."""

    url: str
    key: str

    @property
    def headers(self) -> dict[str, str]:
        """What a request carries."""
        return {"Authorization": f"Bearer {self.key}"}


Target = Command | Address


class Client(msgspec.Struct, frozen=True):
    """One program that speaks MCP."""

    name: str
    title: str
    files: Callable[[Mapping[str, str], str], tuple[str, ...]]
    """(environment, platform) to the files it may have; the first that is there is used, else the first."""
    path: tuple[str, ...]
    """Where entries stand in it."""
    command: Callable[[Command], dict[str, Any]]
    address: Callable[[Address], dict[str, Any]] | None
    """None: it takes commands only."""
    format: Literal["json", "toml"] = "json"
    advice: str = ""
    """What to do in the client so that it sees the change; "" when it looks by itself."""

    def file(self, environ: Mapping[str, str], platform: str = sys.platform) -> str:
        """Its file on this machine."""
        files = self.files(environ, platform)
        return next((file for file in files if os.path.exists(file)), files[0])

    def entry(self, target: Target) -> dict[str, Any]:
        """``target`` as this client writes it. Raises ConfigError when it cannot."""
        if isinstance(target, Command):
            return self.command(target)
        if self.address is None:
            raise ConfigError(f"{self.title} reaches servers by commands only; leave out --http.")
        return self.address(target)


def find(name: str) -> Client:
    """The client of that name. Raises ConfigError, which lists them."""
    if name not in CLIENTS:
        raise ConfigError(f'There is no client "{name}". Clients: {", ".join(CLIENTS)}.')
    return CLIENTS[name]


def _plain(target: Command) -> dict[str, Any]:
    entry: dict[str, Any] = {"command": target.program, "args": list(target.args)}
    return entry | ({"env": target.env} if target.env else {})


def _typed(target: Command) -> dict[str, Any]:
    return {"type": "stdio", **_plain(target)}


def _local(target: Command) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "local", "command": [target.program, *target.args], "enabled": True}
    return entry | ({"environment": target.env} if target.env else {})


def _under(key: str, **more: Any) -> Callable[[Address], dict[str, Any]]:
    """The shape that has the URL under ``key``, the headers under ``headers``."""
    return lambda target: {**more, key: target.url, "headers": target.headers}


def _codex(target: Address) -> dict[str, Any]:
    return {"url": target.url, "http_headers": target.headers}


def _home(*parts: str, variable: str = "", folder: str = "") -> Callable[[Mapping[str, str], str], tuple[str, ...]]:
    """A file below the user's home folder, or below ``folder`` in the folder that ``variable`` names."""

    def files(environ: Mapping[str, str], platform: str) -> tuple[str, ...]:
        if variable and (own := environ.get(variable)):
            return (os.path.join(own, folder, parts[-1]),)
        return (os.path.join(_user(environ), *parts),)

    return files


def _application(name: str, *parts: str) -> Callable[[Mapping[str, str], str], tuple[str, ...]]:
    """A file where the platform keeps an application's settings."""

    def files(environ: Mapping[str, str], platform: str) -> tuple[str, ...]:
        if platform == "darwin":
            return (os.path.join(_user(environ), "Library", "Application Support", name, *parts),)
        return (os.path.join(_settings(environ), name, *parts),)

    return files


def _opencode(environ: Mapping[str, str], platform: str) -> tuple[str, ...]:
    folder = os.path.join(_settings(environ), "opencode")
    return (os.path.join(folder, "opencode.json"), os.path.join(folder, "opencode.jsonc"))


def _settings(environ: Mapping[str, str]) -> str:
    return environ.get("XDG_CONFIG_HOME") or os.path.join(_user(environ), ".config")


def _user(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")


CLIENTS = {
    client.name: client
    for client in (
        Client(
            "claude-code",
            "Claude Code",
            _home(".claude.json", variable="CLAUDE_CONFIG_DIR"),
            ("mcpServers",),
            _typed,
            _under("url", type="http"),
            advice="Sessions that are open see it after a restart.",
        ),
        Client(
            "claude-desktop",
            "Claude Desktop",
            _application("Claude", "claude_desktop_config.json"),
            ("mcpServers",),
            _plain,
            None,
            advice="Restart it.",
        ),
        Client(
            "codex",
            "Codex",
            _home(".codex", "config.toml", variable="CODEX_HOME"),
            ("mcp_servers",),
            _plain,
            _codex,
            format="toml",
            advice="Sessions that are open see it after a restart.",
        ),
        Client("cursor", "Cursor", _home(".cursor", "mcp.json"), ("mcpServers",), _plain, _under("url")),
        Client(
            "gemini",
            "Gemini CLI",
            _home(".gemini", "settings.json"),
            ("mcpServers",),
            _plain,
            _under("httpUrl"),
            advice="Sessions that are open see it after a restart.",
        ),
        Client(
            "opencode",
            "opencode",
            _opencode,
            ("mcp",),
            _local,
            _under("url", type="remote", enabled=True),
            advice="Sessions that are open see it after a restart.",
        ),
        Client(
            "vscode",
            "VS Code",
            _application("Code", "User", "mcp.json"),
            ("servers",),
            _typed,
            _under("url", type="http"),
        ),
        Client(
            "windsurf",
            "Windsurf",
            _home(".codeium", "windsurf", "mcp_config.json"),
            ("mcpServers",),
            _plain,
            _under("serverUrl"),
            advice="Press refresh in its list of MCP servers.",
        ),
        Client(
            "zed",
            "Zed",
            _home(".config", "zed", "settings.json", variable="XDG_CONFIG_HOME", folder="zed"),
            ("context_servers",),
            _plain,
            _under("url"),
        ),
    )
}
"""By name, sorted."""
