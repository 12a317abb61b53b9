"""``mooring export`` with a real daemon behind it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from mooring.testing import HttpClient, StdioClient
from mooring.testing.daemon import Daemon, daemon, server


@pytest.fixture
async def running(place: Path) -> AsyncGenerator[Daemon]:
    async with daemon(place, {"e": server()}) as started:
        yield started


async def test_the_command_that_is_written_reaches_the_workspace(running: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    code, out, _ = await running.command("export", "cursor", "-w", "w", "--file", str(file), "--json")
    assert (code, json.loads(out)["written"]) == (0, True)
    entry = json.loads(file.read_text())["mcpServers"]["mooring"]
    assert "mrg_" not in file.read_text()
    async with StdioClient([entry["command"], *entry["args"]], env=entry["env"]) as client:
        await client.open()
        assert "e_echo" in [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
    code, out, _ = await running.command("export", "cursor", "-w", "w", "--file", str(file), "--json")
    assert (code, json.loads(out)["changes"]) == (0, False)


async def test_the_url_that_is_written_opens_with_its_key_until_it_is_removed(running: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    words = ("export", "cursor", "-w", "w", "--http", "--file", str(file))
    code, out, _ = await running.command(*words, "--dry-run")
    assert code == 0
    assert not file.exists()
    assert '"url"' in out
    assert await running.mooring.key_list() == []
    for _ in range(2):  # a second export ends the key of the first
        assert (await running.command(*words))[0] == 0
    entry = json.loads(file.read_text())["mcpServers"]["mooring"]
    assert [row.name for row in await running.mooring.key_list("w") if not row.revoked] == ["export-cursor"]
    token = entry["headers"]["Authorization"].removeprefix("Bearer ")
    async with HttpClient(entry["url"], token=token) as client:
        await client.open()
        assert "e_echo" in [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
    code, _, _ = await running.command("export", "cursor", "--remove", "--file", str(file))
    assert code == 0
    assert not file.exists()
    assert all(row.revoked for row in await running.mooring.key_list("w"))


async def test_a_client_that_takes_no_url_gets_no_key(running: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    code, _, err = await running.command("export", "claude-desktop", "-w", "w", "--http", "--file", str(file))
    assert code == 2
    assert "--http" in err
    assert await running.mooring.key_list() == []
