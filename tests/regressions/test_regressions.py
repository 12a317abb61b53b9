"""What went wrong elsewhere, one test for each report; it is not to go wrong here.

Those whose report is about containers (docker/mcp-gateway 318 and 483, mcp-debugger 633) are told for processes here:
the mistake, a server for each call or one that nobody ends, is the same.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mooring.testing import wait_for
from mooring.testing.daemon import Daemon, daemon, launched, server, write_config
from mooring.testing.processes import alive, descendants, descriptors, state
from mooring.testing.speech import Era

ERAS: tuple[Era, ...] = ("legacy", "modern")
Names = Callable[[], Awaitable[set[str]]]


def text(result: dict[str, Any]) -> str:
    assert not result.get("isError"), result
    return "".join(block.get("text", "") for block in result["content"])


def kind(result: dict[str, Any]) -> str:
    return result["_meta"]["mooring/error"]["kind"]


def prefixes(listed: dict[str, Any]) -> set[str]:
    return {tool["name"].partition("_")[0] for tool in listed["tools"]}


async def state_of(running: Daemon, name: str, wanted: str) -> None:
    async def reached() -> bool:
        return [row.state for row in await running.rows(name)] == [wanted]

    await wait_for(reached, 20, 0.02)


async def test_mcphub_1029_a_sleeping_server_is_listed_and_wakes(tmp_path: Path) -> None:
    """Its tools were not kept, so it was never woken. R14: also after the daemon was started anew."""
    write_config(tmp_path / "mooring.toml", {"echo": server(idle_timeout="50ms")})
    for _ in range(2):
        async with launched(tmp_path) as running, await running.client("w") as client:
            await client.open()
            assert prefixes(await client.result("tools/list")) == {"echo"}
            await state_of(running, "echo", "stopped")
            assert prefixes(await client.result("tools/list")) == {"echo"}
            assert [row.state for row in await running.rows("echo")] == ["stopped"], "a list starts nothing"
            text(await client.call("echo_pid"))


@pytest.mark.timeout(180)
async def test_mcphub_1154_104_servers_at_once_all_come_up_and_are_known_the_next_day(tmp_path: Path) -> None:
    """19 came up, 88 failed, and nothing was kept on disk. R11"""
    names = {f"s{number}" for number in range(104)}
    write_config(tmp_path / "mooring.toml", {name: server() for name in names})
    async with launched(tmp_path) as running:

        async def all_listed() -> bool:
            return all(row.tools for row in await running.mooring.ps())

        await wait_for(all_listed, 120, 0.1)
        rows = await running.mooring.ps()
        assert {(row.state, row.restarts, row.last_error) for row in rows} == {("ready", 0, "")}
    async with launched(tmp_path) as running, await running.client("w") as client:
        await client.open()
        assert prefixes(await client.result("tools/list")) == names
        assert len(descendants(running.process.pid)) == 1, "the keeper: what is known needs no start"


@pytest.mark.parametrize("era", ERAS)
async def test_mcphub_1163_a_call_longer_than_the_idle_time_is_not_cut(tmp_path: Path, era: Era) -> None:
    """The server was stopped as idle in the middle of it. R14"""
    servers = {"echo": server(idle_timeout="50ms")}
    async with daemon(tmp_path, servers) as running, await running.client("w", era) as client:
        await client.open()
        assert text(await client.call("echo_sleep", {"seconds": 1.0, "steps": 1})) == "slept 1.0"


async def test_docker_318_one_call_makes_one_server_and_the_next_calls_none(tmp_path: Path) -> None:
    """142 containers came from one call. R11"""
    async with daemon(tmp_path, {"echo": server()}) as running, await running.client("w") as client:
        await client.open()
        pids = {text(await client.call("echo_pid")) for _ in range(20)}
        pids |= {text(result) for result in await asyncio.gather(*(client.call("echo_pid") for _ in range(20)))}
        assert len(pids) == 1
        assert len(descendants(running.process.pid)) == 2, "the keeper and the server"


async def test_docker_483_many_starts_and_ends_leave_nothing_to_pile_up(tmp_path: Path) -> None:
    """180 containers and 526 zombies were left. R15, A13"""
    servers = {"echo": server("--spawn-grandchild", idle_timeout="1ms", timeouts={"close": "400ms"})}
    async with daemon(tmp_path, servers) as running, await running.client("w") as client:
        root = running.process.pid
        await client.open()
        seen: set[int] = set()
        count = 0
        for number in range(25):
            content = (await client.call("echo_pid"))["structuredContent"]
            seen |= {content["pid"], *content["grandchildren"]}
            await state_of(running, "echo", "stopped")
            if number == 5:
                count = descriptors(root)
        assert len(seen) == 75
        await wait_for(lambda: not [pid for pid in seen if state(pid)], 10, 0.02)
        assert len(descendants(root)) == 1
        assert descriptors(root) <= count


async def test_docker_567_the_same_tool_in_two_servers_stops_nobody(tmp_path: Path) -> None:
    """A duplicate name was fatal at start. A20: each has its prefix."""
    async with daemon(tmp_path, {"one": server(), "two": server()}) as running, await running.client("w") as client:
        await client.open()
        names = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        assert len(names) == len(set(names))
        assert text(await client.call("one_pid")) != text(await client.call("two_pid"))


async def test_agentgateway_962_one_failing_server_costs_the_others_nothing(tmp_path: Path) -> None:
    """The whole list failed. R12, A32: it is named, with the reason."""
    servers = {"bad": server("--crash-at-start"), "worse": server("--fail", "tools/list"), "good": server()}
    async with daemon(tmp_path, servers) as running, await running.client("w") as client:
        await client.open()
        listed = await client.result("tools/list")
        assert prefixes(listed) == {"good"}
        missing = {each["server"]: each["reason"] for each in listed["_meta"]["mooring/missing"]}
        assert "cannot start" in missing["bad"]
        assert "fails on purpose" in missing["worse"]
        text(await client.call("good_pid"))


async def test_agentgateway_3622_a_server_that_was_restarted_is_wholly_back(tmp_path: Path) -> None:
    """Its tools were listed and its calls failed. A16: sessions that are open see nothing of it."""
    async with (
        daemon(tmp_path, {"echo": server(), "other": server()}) as running,
        await running.client("w", "legacy") as legacy,
        await running.client("w", "modern") as modern,
    ):
        await legacy.open()
        await modern.open()
        first = text(await legacy.call("echo_pid"))
        before = (await modern.result("tools/list"))["tools"]
        assert await running.mooring.restart("echo") == 1
        for client in (legacy, modern):
            assert text(await client.call("echo_pid")) != first
            assert (await client.result("tools/list"))["tools"] == before
            text(await client.call("other_pid"))


async def test_python_sdk_1764_large_messages_both_ways_at_once_do_not_block_each_other(tmp_path: Path) -> None:
    """Buffers without room made both sides wait for ever. A15"""
    large = {"text": "x" * 1_000_000}
    async with daemon(tmp_path, {"echo": server()}) as running, await running.client("w", timeout=30.0) as client:
        await client.open()
        calls = [client.call("echo_echo", large) for _ in range(8)]
        calls += [client.call("echo_huge", {"bytes": 2_000_000}) for _ in range(8)]
        results = await asyncio.gather(*calls)
        assert [result["structuredContent"] == large for result in results[:8]] == [True] * 8
        assert [len(text(result)) for result in results[8:]] == [2_000_000] * 8


async def test_xcodemcpkit_210_a_cancelled_call_is_the_callers_own(tmp_path: Path) -> None:
    """The cancellation reached another client's call with the same id. A15"""
    async with (
        daemon(tmp_path, {"echo": server()}) as running,
        await running.client("w", "legacy") as one,
        await running.client("w", "legacy") as two,
    ):
        await one.open()
        await two.open()
        body = {"name": "echo_sleep", "arguments": {"seconds": 1.5, "steps": 1}}
        calls = [asyncio.create_task(client.request("tools/call", body)) for client in (one, two)]

        async def both_run() -> bool:
            return sum(row.leases for row in await running.rows("echo")) == 2

        await wait_for(both_run, 10)
        assert one._last_id == two._last_id, "the same id, in two sessions"
        await one.notify("notifications/cancelled", {"requestId": one._last_id})
        assert text((await calls[1])["result"]) == "slept 1.5"
        calls[0].cancel()
        await asyncio.gather(calls[0], return_exceptions=True)
        seen = (await two.call("echo_seen"))["structuredContent"]
        assert len(seen["cancelled"]) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_claude_code_87966_a_server_in_a_crash_loop_does_not_change_the_list(tmp_path: Path, era: Era) -> None:
    """Each crash changed the tools, and with them the prompt that was to stay the same, byte by byte."""
    async with (
        daemon(tmp_path, {"loop": server(), "calm": server()}) as running,
        await running.client("w", era) as client,
    ):
        await client.open()
        await client.call("loop_pid")
        await client.result("tools/list")
        lists: set[bytes] = set()
        for _ in range(6):
            lists.add(str((await client.result("tools/list"))["tools"]).encode())
            await client.call("loop_crash")
            lists.add(str((await client.result("tools/list"))["tools"]).encode())
            await running.mooring.restart("loop")
        assert len(lists) == 1


async def test_mcp_debugger_633_the_end_of_its_input_is_not_all_that_ends_a_server(tmp_path: Path) -> None:
    """98 containers waited for the end of a process that ignored that its input was closed. A13"""
    servers = {"deaf": server("--ignore-eof", idle_timeout="20ms", timeouts={"close": "400ms"})}
    async with daemon(tmp_path, servers) as running, await running.client("w") as client:
        await client.open()
        for _ in range(3):
            pid = int(text(await client.call("deaf_pid")))
            await wait_for(lambda pid=pid: not alive(pid), 10, 0.02)


@pytest.mark.parametrize("how", ["crash", "restart", "reload", "stop"])
async def test_hermes_60509_whatever_way_a_server_ends_its_helpers_end_with_it(tmp_path: Path, how: str) -> None:
    """Four ways out left processes behind, those in sessions of their own too (hermes 12978). R15, A13"""
    table = server("--spawn-grandchild", "--ignore-term", timeouts={"close": "400ms"})
    async with daemon(tmp_path, {"echo": table, "calm": server()}) as running, await running.client("w") as client:
        await client.open()
        content = (await client.call("echo_pid"))["structuredContent"]
        family = {content["pid"], *content["grandchildren"]}
        assert len(family) == 3
        match how:
            case "crash":
                assert kind(await client.call("echo_crash")) == "crashed"
            case "restart":
                await running.mooring.restart("echo")
            case "reload":
                write_config(running.home / "mooring.toml", {"calm": server()})
                await running.mooring.reload()
            case _:
                await running.mooring.stop()
                assert await running.ended() == 0
        await wait_for(lambda: not [pid for pid in family if alive(pid)], 10, 0.02)


async def test_mcp_gateway_397_two_reloads_at_once_leave_no_process_without_an_owner(tmp_path: Path) -> None:
    """Of two that ran at the same time one lost sight of what it had started. R8, R15"""
    async with daemon(tmp_path, {"echo": server("--name", "0")}) as running, await running.client("w") as client:
        await client.open()
        for number in range(1, 9):
            write_config(running.home / "mooring.toml", {"echo": server("--name", f"{number}")})
            done = await asyncio.gather(*(running.mooring.reload() for _ in range(4)), client.call("echo_pid"))
            assert all(report.applied for report in done[:4])
        pid = int(text(await client.call("echo_pid")))
        await wait_for(lambda: len(descendants(running.process.pid)) == 2, 10, 0.02)
        assert pid in descendants(running.process.pid)


async def test_mcp_gateway_of_edits_at_once_none_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    """The lost edit: of two saves at the same time one overwrote the other. A22: here it is refused, and can be tried
    again."""
    write_config(tmp_path / "mooring.toml", {"echo": server()})
    env = {**os.environ, "MOORING_HOME": str(tmp_path)}

    async def add(number: int) -> bool:
        words = ("server", "add", f"new{number}", "--", "true")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mooring", *words),
            env=env,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, error = await process.communicate()
        assert process.returncode == 0 or b"changed by somebody else just now; try again" in error, error
        return process.returncode == 0

    left, done = set(range(6)), set[int]()
    while left:
        numbers = sorted(left)
        added = await asyncio.gather(*(add(number) for number in numbers))
        done |= {number for number, good in zip(numbers, added, strict=True) if good}
        assert len(done) > 6 - len(left), "somebody wins"
        left -= done
        written = (tmp_path / "mooring.toml").read_text()
        assert [number for number in done if f"[mcp_servers.new{number}]" not in written] == []
