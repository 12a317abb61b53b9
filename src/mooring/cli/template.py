"""The project that ``mooring plugins new`` writes: a plugin with one MCP server, its tests, and how to try it."""

from __future__ import annotations

import os

from mooring import __version__
from mooring.config.names import prefix_of, server_fault
from mooring.errors import ConfigError


def written(name: str, into: str | None) -> tuple[str, tuple[str, ...]]:
    """Write it into a folder that is not there yet or empty; the folder and the files in it. Raises ConfigError."""
    if fault := server_fault(name):
        raise ConfigError(fault)
    if not name[-1].isalnum():
        raise ConfigError(f'"{name}" cannot be the end of a package\'s name: let it end with a letter or a digit')
    folder = os.path.abspath(into or f"mooring-{name}")
    if os.path.isdir(folder) and os.listdir(folder):
        raise ConfigError(f"{folder} is not empty; name another folder with --into")
    files = project(name)
    for file, text in files.items():
        path = os.path.join(folder, file)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(text)
    return folder, tuple(files)


def project(name: str) -> dict[str, str]:
    """Its files. Pure."""
    module = prefix_of(name)
    capitals = "".join(part.capitalize() for part in module.split("_"))
    words = {
        "NAME": name,
        "PACKAGE": f"mooring_{module}",
        "CLASS": f"{'Plugin' if module[0].isdigit() else ''}{capitals}Plugin",
        "MODULE": module,
        "RELEASE": ".".join(__version__.split(".")[:2]),
    }
    files: dict[str, str] = {}
    for file, text in _FILES.items():
        for word, value in words.items():
            file, text = file.replace(f"@{word}@", value), text.replace(f"@{word}@", value)
        files[file] = text
    return files


_FILES = {
    "pyproject.toml": """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "mooring-@NAME@"
version = "0.1.0"
description = "What this plugin is for, in one sentence."
requires-python = ">=3.11"
dependencies = ["mooring>=@RELEASE@", "mcp>=2.3"]

[project.optional-dependencies]
test = ["pytest>=8", "ruff>=0.12"]

[project.entry-points."mooring.plugins"]
@NAME@ = "@PACKAGE@:@CLASS@"

[tool.hatch.build.targets.wheel]
packages = ["src/@PACKAGE@"]

[tool.ruff]
line-length = 120
""",
    "README.md": """# mooring-@NAME@

A plugin for [Mooring](https://github.com/mooring/mooring) that brings the MCP server `@NAME@`.

    pip install -e '.[test]'     # where Mooring is installed
    ruff check . && pytest       # its own tests
    mooring plugins              # what Mooring found
    mooring ps                   # what the daemon runs; starts it when it is not running
    mooring reload               # it takes up what was installed, edited or removed
    mooring call @MODULE@_greet '{"name": "Ada"}'

Every workspace with `mcp_servers = ["*"]` or `["@NAME@"]` has its tools. Where there is a container engine it runs in a
container; `[plugins] run = "host"` in `mooring.toml` runs it on this machine.
""",
    "src/@PACKAGE@/__init__.py": '''"""The plugin @NAME@ for Mooring."""

from @PACKAGE@.plugin import @CLASS@

__all__ = ["@CLASS@"]
''',
    "src/@PACKAGE@/plugin.py": '''"""What the plugin brings. Imported by Mooring, so it imports nothing heavy."""

from pathlib import Path

from mooring.plugins import McpPlugin, McpServerSpec


class @CLASS@(McpPlugin):
    """Brings the MCP server "@NAME@"."""

    name = "@NAME@"
    version = "0.1.0"
    description = "What this plugin is for, in one sentence."

    def mcp_server_spec(self) -> McpServerSpec:
        """How to run it. Packages that it needs and Mooring does not: requirements=["..."]."""
        return McpServerSpec(
            name="@NAME@",
            command="python",
            args=["-m", "@PACKAGE@.server"],
            host_source=Path(__file__).parent,
        )
''',
    "src/@PACKAGE@/server.py": '''"""The MCP server "@NAME@", on stdin and stdout."""

from mcp.server import MCPServer

server = MCPServer("@NAME@")


@server.tool()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


if __name__ == "__main__":
    server.run("stdio")
''',
    "tests/test_@MODULE@.py": '''"""The server by itself, and its tool through a real Mooring daemon."""

import asyncio
import sys
from pathlib import Path

from mooring.testing import StdioClient
from mooring.testing.daemon import daemon


def test_the_server_answers() -> None:
    async def main() -> None:
        async with StdioClient([sys.executable, "-m", "@PACKAGE@.server"]) as client:
            await client.open()
            answer = await client.call("greet", {"name": "Ada"})
            assert answer["content"][0]["text"] == "Hello, Ada!"

    asyncio.run(main())


def test_its_tool_can_be_called_through_mooring(tmp_path: Path) -> None:
    async def main() -> None:
        workspaces = {"w": {"mcp_servers": ["@NAME@"]}}
        async with (
            daemon(tmp_path, {}, workspaces, plugins={"run": "host"}) as running,
            await running.client("w") as client,
        ):
            await client.open()
            answer = await client.call("@MODULE@_greet", {"name": "Ada"})
            assert answer["content"][0]["text"] == "Hello, Ada!"

    asyncio.run(main())
''',
}
