"""Servers in real containers, from a client's first call to the idle stop; the engine and ``mooring ps`` agree."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from container_kit import LIMIT, Kept, Table, agree, answer, asleep, called

from mooring.testing import wait_for
from mooring.testing.daemon import daemon as plain_daemon
from mooring.testing.daemon import server

PORT = 8931


@pytest.mark.parametrize("language", ["python", "node"])
async def test_servers_run_from_the_first_call_until_they_are_idle(
    kept: Kept, tmp_path: Path, language: str, request: pytest.FixtureRequest
) -> None:
    """R11 R13 R14 R16: over stdio, over a published port, and over HTTP without any network: started by a call, seen
    alike by the engine and by ``mooring ps``, gone after idle."""
    table: Table = request.getfixturevalue("probe" if language == "python" else "node_probe")
    listening = ("--port", str(PORT))
    servers = {
        "pipe": table(idle_timeout=2),
        "port": table(*listening, port=PORT, idle_timeout=2),
        "closed": table(*listening, port=PORT, network="none", idle_timeout=2),
    }
    async with kept.daemon(tmp_path / "home", servers) as daemon:
        await asleep(daemon)
        await agree(kept, daemon, 0)
        async with await daemon.client("w", timeout=LIMIT) as client:
            await client.open()
            calls = [(name, n) for name in servers for n in range(3)]
            answers = await asyncio.gather(*(client.call(f"{name}_echo", {"n": n}) for name, n in calls))
            assert [answer["structuredContent"]["n"] for answer in answers] == [n for _, n in calls]

            async def all_three() -> dict[str, str] | None:
                """What runs, none of them idle meanwhile: another one may have taken longer than that to start."""
                await asyncio.gather(*(client.call(f"{name}_echo", {"n": 0}) for name in servers))
                names = {f"{kept.engine}:{name}" for name in kept.names(daemon.home)}
                rows = {row.server: row.container or "" for row in await daemon.mooring.ps()}
                return rows if len(names) == 3 and names == set(rows.values()) else None

            found = await wait_for(all_three, LIMIT, 0.05)
        for name, container in found.items():
            assert container.startswith(f"{kept.engine}:mooring-mcp-{name}-")
        await agree(kept, daemon, 0)
        assert {row.state for row in await daemon.mooring.ps()} == {"stopped"}
        assert (await called(daemon, "port_echo", n=9))["n"] == 9


async def test_equal_settings_share_a_container_and_others_do_not(kept: Kept, tmp_path: Path, echo: Table) -> None:
    """R7 R10 R12: equal kwargs, in any order, are one container; ``{workspace}`` and other kwargs make further ones."""
    servers = {"one": echo("--name", "{who}"), "own": echo("--instructions", "{workspace}")}
    spoken = {"who": "a", "tools": 2}
    workspaces = {
        name: {"mcp_servers": ["one", "own"], "mcp": {"one": kwargs}}
        for name, kwargs in {"a": spoken, "b": dict(reversed(spoken.items())), "c": {**spoken, "who": "c"}}.items()
    }
    async with kept.daemon(tmp_path / "home", servers, workspaces) as daemon:
        for workspace in workspaces:
            await called(daemon, "one_pid", workspace)
            await called(daemon, "own_pid", workspace)
        await agree(kept, daemon, 5)
        counts = [(await called(daemon, "one_counter", workspace))["count"] for workspace in workspaces]
        assert counts == [1, 2, 1]
        assert len(await daemon.rows("one")) == 2
        assert len(await daemon.rows("own")) == 3


async def test_a_changed_definition_is_another_container(kept: Kept, tmp_path: Path, echo: Table) -> None:
    """R8: the variant stays, the container does not."""
    home = tmp_path / "home"
    async with kept.daemon(home, {"one": echo("--name", "before")}) as daemon:
        await called(daemon, "one_pid")
        (before,) = kept.names(home)
        file = home / "mooring.toml"
        file.write_text(file.read_text().replace("before", "after"))
        await daemon.mooring.reload()
        await called(daemon, "one_pid")
        await agree(kept, daemon, 1)
        (after,) = kept.names(home)
        assert after != before
        assert [row.variant for row in await daemon.rows("one")] == ["one"]


async def test_ports_of_two_instances_do_not_clash(kept: Kept, tmp_path: Path, probe: Table) -> None:
    """R9: the same port and the same further port in two containers."""
    servers = {name: probe("--port", "8000", port=8000, ports=[8888]) for name in ("one", "two")}
    async with kept.daemon(tmp_path / "home", servers) as daemon:
        for name in servers:
            assert (await called(daemon, f"{name}_echo", n=1)) == {"n": 1}
        await agree(kept, daemon, 2)
        assert daemon.output.count("port 8888 is on 127.0.0.1:") >= 2


async def test_a_broken_engine_stops_no_other_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R39 R12: without an engine all else works, and what does not says what to install."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    home = tmp_path / "home"
    home.mkdir()
    async with plain_daemon(home, {"box": {"image": "localhost/nothing"}, "echo": server()}) as running:
        assert await called(running, "echo_echo", n=1) == {"n": 1}
        result = await answer(running, "box_echo")
        assert result["isError"]
        (row,) = await running.rows("box")
        assert "podman is not installed; docker is not installed" in row.last_error + row.reason
        assert "https://podman.io" in row.last_error + row.reason
