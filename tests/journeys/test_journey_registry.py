"""Servers added while the agent works, from real catalogs: without any configuration, through a real MCP client and by
the command line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring.testing import StdioClient
from mooring.testing.daemon import Daemon, launched

LIMIT = 300.0
"""Seconds for a step that downloads."""
SQLITE = """
["pypi/mcp-server-sqlite"]
name = "SQLite"
packages = [{ registryType = "pypi", identifier = "mcp-server-sqlite", runtimeArguments = [{ type = "named", name = "--with", value = "mcp<2" }], packageArguments = ["--db-path", { valueHint = "file", isRequired = true }] }]
"""  # noqa: E501
EVERYTHING = "npm/@modelcontextprotocol/server-everything"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a configuration but for a free port and a catalog of one's own."""
    home = tmp_path / "home"
    (home / "entries").mkdir(parents=True)
    (home / "entries" / "own.toml").write_text(SQLITE)
    own = '[catalog.sources.own]\nkind = "files"\npath = "entries"\ntrusted = true\n'
    (home / "mooring.toml").write_text(f'[gateway]\nlisten = ["127.0.0.1:0"]\n{own}')
    beside = os.path.dirname(sys.executable)
    monkeypatch.setenv("PATH", os.pathsep.join((beside, os.environ.get("PATH", ""))))
    return home


def client(running: Daemon) -> StdioClient:
    return StdioClient([sys.executable, "-m", "mooring", "registry"], env=running.env, timeout=LIMIT)


def text(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


@pytest.mark.network
@pytest.mark.timeout(900)
async def test_an_old_server_from_pypi_runs_with_what_it_needs(home: Path, tmp_path: Path) -> None:
    """R33 R34: its entry says which versions of its libraries it runs with."""
    async with launched(home) as running:
        await running.mooring.catalog_refresh(["own"])
        async with client(running) as it:
            await it.open()
            settings = {"file": str(tmp_path / "test.db")}
            asked = {"entry_id": "pypi/mcp-server-sqlite", "prefix": "my_db", "settings": settings}
            added = await it.call("registry_add", asked, _meta={"progressToken": 1})
            assert text(added).startswith("Successfully activated: SQLite\nTools: my_db_read_query"), added
            assert any(note["method"] == "notifications/progress" for note in it.notifications)
            await it.heard("notifications/tools/list_changed")
            create = {"query": "CREATE TABLE boats (name TEXT)"}
            await it.call("registry_exec", {"tool_name": "my_db_create_table", "arguments": create})
            listed = await it.call("registry_exec", {"tool_name": "my_db_list_tables", "arguments": {}})
            assert "boats" in text(listed)
            assert text(await it.call("registry_remove", {"entry_id": "my_db"})) == "Successfully deactivated: SQLite"
    assert (tmp_path / "test.db").exists()


@pytest.mark.network
@pytest.mark.timeout(900)
async def test_an_entry_from_npm_by_the_command_line(home: Path) -> None:
    """R33 R34: find, add, exec and remove as verbs."""
    async with launched(home) as running:

        async def said(*words: str) -> Any:
            code, out, err = await run(running, *words)
            assert code == 0, err
            return json.loads(out)

        assert (await said("find", "everything", "--json"))[0]["id"] == EVERYTHING
        mount = await said("add", EVERYTHING, "--prefix", "all", "--json")
        assert (mount["name"], mount["prefix"], mount["state"]) == ("Everything", "all", "ready")
        assert "echo" in mount["tools"]
        result = await said("exec", "mcp_all_echo", '{"message": "ahoy"}', "--json")
        assert "ahoy" in text(result)
        assert [row["entry_id"] for row in await said("add", "--json")] == [EVERYTHING]
        code, out, _ = await run(running, "remove", "all")
        assert (code, out) == (0, "Successfully deactivated: Everything\n")
        assert await said("add", "--json") == []


async def run(running: Daemon, *words: str) -> tuple[int, str, str]:
    """``mooring`` as a user runs it, however long it takes."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mooring", *words),
        env=running.env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()
