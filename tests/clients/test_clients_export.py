"""What ``mooring export`` writes, as the programs themselves read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.testing.daemon import Daemon
from mooring.testing.model import Model
from real_clients.claude_code import ClaudeCode
from real_clients.codex import Codex
from real_clients.gemini import Gemini
from real_clients.place import Place

HTTP = pytest.mark.parametrize("options", [["--http"], []], ids=["http", "stdio"])


async def export(gateway: Daemon, client: str, file: Path, *options: str) -> None:
    """Run the verb as a user does."""
    code, _, err = await gateway.command("export", client, "-w", "w", "--file", str(file), *options)
    assert code == 0, err


@HTTP
async def test_claude_code_connects(gateway: Daemon, place: Place, options: list[str]) -> None:
    await export(gateway, "claude-code", place.home / ".claude.json", *options)
    assert "✔ Connected" in await ClaudeCode(place).mcp("list")


@HTTP
async def test_codex_calls_a_tool_and_has_its_file_back_afterwards(
    gateway: Daemon, place: Place, model: Model, options: list[str]
) -> None:
    codex = Codex(place, model.url)
    file = place.home / ".codex/config.toml"
    before = file.read_bytes()
    await export(gateway, "codex", file, *options)
    (said,) = (item for item in await codex.ask("%call box_counter") if item["type"] == "agent_message")
    assert said["text"].endswith('{"count":1}')
    await export(gateway, "codex", file, "--remove")
    assert file.read_bytes() == before


@HTTP
async def test_gemini_connects(gateway: Daemon, place: Place, options: list[str]) -> None:
    gemini = Gemini(place, None)
    await export(gateway, "gemini", place.home / ".gemini/settings.json", *options)
    assert "✓ mooring" in (await gemini.mcp("list")).err
