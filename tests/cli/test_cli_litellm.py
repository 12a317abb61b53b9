"""``mooring litellm`` and ``mooring env --litellm``, with a daemon and a fake LiteLLM."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from mooring.testing.daemon import Daemon, daemon, server
from mooring.testing.litellm import FakeLiteLLM
from mooring.testing.waiting import wait_for

KEY = "LITELLM_MASTER_KEY"
TOLD = "http://litellm.example:4000"
"""Where agents reach it."""


@pytest.fixture
async def fake() -> AsyncGenerator[FakeLiteLLM]:
    async with FakeLiteLLM() as fake:
        yield fake


@pytest.fixture
async def running(fake: FakeLiteLLM, place: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Daemon]:
    """A daemon that has synced after its start."""
    monkeypatch.setenv(KEY, fake.master_key)
    settings = {"url": fake.url, "public_url": TOLD, "master_key": {"env": KEY}}
    servers = {"time": server(), "git": server(sharing="session")}
    async with daemon(place, servers, {"a": {"mcp_servers": ["*"]}}, litellm=settings) as running:
        await wait_for(lambda: fake.keys, 20)
        assert (await running.mooring.litellm_sync()).changes == ()
        yield running


async def test_sync_says_what_it_did_and_what_it_left_out(running: Daemon, fake: FakeLiteLLM) -> None:
    """R20"""
    fake.servers.clear()
    code, out, _ = await running.command("litellm", "sync", "--dry-run")
    assert code == 0
    assert fake.servers == {}
    change, skipped = (line.split("\t") for line in out.splitlines())
    assert change == ["change", "create", "server", "time", ""]
    assert skipped[:3] == ["skipped", "a", "git"]
    assert await running.command("litellm", "sync") == (0, out, "")
    (row,) = fake.servers.values()
    assert row["url"] == running.endpoint.replace("/mcp", "/s/time/mcp")
    _, out, _ = await running.command("litellm", "sync", "--json")
    report = json.loads(out)
    assert (report["url"], report["applied"], report["changes"]) == (fake.url, True, [])
    assert report["skipped"][0].keys() == {"workspace", "server", "variant", "reason"}


async def test_status_shows_servers_and_fails_when_the_last_sync_did(running: Daemon, fake: FakeLiteLLM) -> None:
    """R20: LiteLLM away is told, and Mooring goes on."""
    code, out, _ = await running.command("litellm", "status", "--json")
    status = json.loads(out)
    assert (code, status["state"], status["via"], status["workspaces"]) == (0, "ok", "mooring", ["a"])
    assert [(row["name"], row["workspaces"]) for row in status["servers"]] == [("time", ["a"])]
    code, out, _ = await running.command("litellm", "status")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["sync", "server", "skipped"]
    await fake.stop()
    code, _, complaint = await running.command("litellm", "sync")
    assert code == 1
    assert f"LiteLLM cannot be reached at {fake.url}" in complaint
    code, out, complaint = await running.command("litellm", "status")
    assert (code, out.split("\t")[3]) == (1, "failing")
    assert "cannot be reached" in complaint
    assert await running.mooring.ps() != []


async def test_remove_takes_everything_out(running: Daemon, fake: FakeLiteLLM) -> None:
    """R18"""
    code, out, _ = await running.command("litellm", "remove")
    assert code == 0
    assert [line.split("\t")[1:3] for line in out.splitlines()] == [
        ["remove", "key"],
        ["remove", "server"],
        ["remove", "team"],
    ]
    assert (fake.servers, fake.teams, fake.keys) == ({}, {}, {})
    assert (await running.command("secret", "list"))[1] == ""


async def test_env_hands_over_the_endpoint_and_the_key(running: Daemon, fake: FakeLiteLLM, tmp_path: Path) -> None:
    """R22: in a file that nobody else may read, and not on the terminal."""
    code, out, _ = await running.command("env", "--litellm")
    assert code == 0
    variables = dict(line.split("=", 1) for line in out.splitlines())
    assert variables.keys() == {"LITELLM_MCP_URL", "LITELLM_MCP_KEY"}
    assert variables["LITELLM_MCP_URL"] == f"{TOLD}/mcp"
    file = tmp_path / "agent.env"
    file.write_text("OTHER=1\nLITELLM_MCP_KEY=old\n")
    assert await running.command("env", "-w", "a", "--litellm", "--file", str(file)) == (0, "", "")
    key = variables["LITELLM_MCP_KEY"]
    assert file.read_text() == f"OTHER=1\nLITELLM_MCP_KEY={key}\nLITELLM_MCP_URL={TOLD}/mcp\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [row.name for row in await running.mooring.key_list()] == ["litellm-time"]
    assert key not in running.output


async def test_without_litellm_the_verbs_say_what_to_write(place: Path) -> None:
    async with daemon(place, {"time": server()}) as running:
        for arguments in (("litellm", "sync"), ("litellm", "status"), ("litellm", "remove"), ("env", "--litellm")):
            code, _, complaint = await running.command(*arguments)
            assert code == 2
            assert "no [litellm]" in complaint


async def test_a_daemon_starts_without_its_litellm(
    fake: FakeLiteLLM, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R20: down at boot stops nothing, and is made up for when somebody asks."""
    monkeypatch.setenv(KEY, fake.master_key)
    await fake.stop()
    settings = {"url": fake.url, "master_key": {"env": KEY}}
    async with daemon(place, {"time": server()}, litellm=settings) as running:
        assert [tool.name for tool in await running.mooring.tools("w")] != []
        await wait_for(lambda: "export.failed exporter=litellm" in running.output, 20)
        await fake.start()
        assert len((await running.mooring.litellm_sync()).changes) == 3
