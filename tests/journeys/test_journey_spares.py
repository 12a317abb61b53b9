"""Servers kept in advance, and no more of them than allowed: what clients notice, and what ``mooring ps`` says."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from mooring.nouns import InstanceRow
from mooring.testing import HttpClient, smcp, wait_for
from mooring.testing.daemon import Daemon, server, write_config
from mooring.testing.processes import alive, descendants, parent

Start = Callable[..., Awaitable[Daemon]]


def text(result: dict[str, Any]) -> str:
    assert not result.get("isError"), result
    return "".join(block.get("text", "") for block in result["content"])


async def spares(daemon: Daemon, name: str, count: int = 1) -> list[InstanceRow]:
    """The spares of a server, once there are so many that can be taken."""

    async def found() -> list[InstanceRow] | None:
        rows = [row for row in await daemon.rows(name) if row.scope == "spare" and row.pid]
        return rows if len(rows) == count else None

    return await wait_for(found, 20, 0.02)


async def stopped(daemon: Daemon, name: str) -> None:
    async def no_more() -> bool:
        return not any(row.state in ("ready", "stopping") for row in await daemon.rows(name))

    await wait_for(no_more, 10)


async def woken(client: HttpClient, name: str) -> tuple[float, int]:
    """Seconds until a sleeping server's first answer, and its pid."""
    began = time.perf_counter()
    result = await client.call(f"{name}_pid")
    return time.perf_counter() - began, int(text(result))


async def test_a_sleeping_server_with_a_spare_wakes_in_milliseconds(start: Start) -> None:
    """R14: the process is there already; only the handshake is left. Once without, once with."""
    daemon = await start({"warm": server(idle_timeout="50ms", spare=1), "cold": server(idle_timeout="50ms")})
    seconds: dict[str, list[float]] = {"warm": [], "cold": []}
    async with await daemon.client("w") as client:
        await client.open()
        await client.result("tools/list")
        for _ in range(7):
            for name in seconds:
                await stopped(daemon, name)
            (spare,) = await spares(daemon, "warm")
            await asyncio.sleep(0.3)  # whatever is started next is no part of this
            took, pid = await woken(client, "warm")
            assert pid == spare.pid, "the very process that waited"
            seconds["warm"].append(took)
            seconds["cold"].append((await woken(client, "cold"))[0])
    middle = {name: statistics.median(values) * 1000 for name, values in seconds.items()}
    sys.stderr.write(f"\nfirst answer with a spare {middle['warm']:.1f} ms, without {middle['cold']:.1f} ms\n")
    assert middle["warm"] < 250, "15 ms on a machine with nothing else to do"
    assert middle["warm"] < middle["cold"] / 2


async def test_spares_are_shown_counted_as_no_use_and_end_with_what_they_are_for(start: Start) -> None:
    """R14, R15, A13: reload, definition, daemon."""
    daemon = await start({"echo": server(spare=2, idle_timeout="100ms"), "other": server()})
    file = daemon.home / "mooring.toml"
    first = await spares(daemon, "echo", 2)
    assert {(row.state, row.reason, row.leases, row.processes) for row in first} == {
        ("starting", "started in advance; the next start takes it", 0, 1)
    }
    assert all(row.memory for row in first)
    async with await daemon.client("w") as client:
        await client.open()
        taken = int(text(await client.call("echo_pid")))
        await stopped(daemon, "echo")
        second = await spares(daemon, "echo", 2)
        assert not alive(taken)

    write_config(file, {"echo": server(spare=1), "other": server()})
    await daemon.mooring.reload()
    third = await spares(daemon, "echo", 1)
    assert {row.pid for row in third} < {row.pid for row in second}, "one of them stays"
    write_config(file, {"echo": server("--name", "changed", spare=1), "other": server()})
    await daemon.mooring.reload()
    await wait_for(lambda: not alive(third[0].pid or 0), 10)
    (fourth,) = await spares(daemon, "echo", 1)
    write_config(file, {"other": server()})
    await daemon.mooring.reload()
    await wait_for(lambda: not alive(fourth.pid or 0), 10)
    write_config(file, {"echo": server(spare=2)})
    await daemon.mooring.reload()
    last = await spares(daemon, "echo", 2)
    daemon.process.terminate()
    assert await daemon.ended() == 0
    assert not [row for row in last if alive(row.pid or 0)]


async def test_each_session_takes_a_spare_of_its_own(start: Start) -> None:
    """R11: where every session has its own process, the wait for it is what a spare saves."""
    daemon = await start({"echo": server(spare=2, sharing="session")})
    before = {row.pid for row in await spares(daemon, "echo", 2)}
    async with await daemon.client("w") as one, await daemon.client("w") as two:
        await one.open()
        await two.open()
        pids = {int(text(result)) for result in await asyncio.gather(one.call("echo_pid"), two.call("echo_pid"))}
    assert pids == before


async def test_a_spare_that_takes_credentials_has_them_already(start: Start, tmp_path: Path) -> None:
    """A2: the handshake belongs to the start; a server waits for its credentials no longer than it would otherwise."""
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("kept")
    command, *args = smcp()
    table = {"command": command, "args": args, "credentials": {"KEY": {"file": str(secret)}}}
    daemon = await start({"ledger": {**table, "spare": 1, "sharing": "session"}})
    (spare,) = await spares(daemon, "ledger")
    async with await daemon.client("w") as client:
        await client.open()
        result = await client.call("ledger_credentials")
        assert result["structuredContent"] == {"KEY": "kept"}
        assert spare.pid in [row.pid for row in await daemon.rows("ledger") if row.state == "ready"]


async def test_the_keepers_end_is_held_against_no_server(start: Start) -> None:
    """A16, R15: killed while servers run: the next call starts each again, at once, without a back-off."""
    daemon = await start({"one": server(), "two": server("--era", "legacy"), "warm": server(spare=1)})
    root = daemon.process.pid
    (keeper,) = [pid for pid in descendants(root) if parent(pid) == root]
    async with await daemon.client("w") as client:
        await client.open()
        names = ("one", "two", "warm")
        before = [text(await client.call(f"{name}_pid")) for name in names]
        waiting = asyncio.create_task(client.call("one_sleep", {"seconds": 20}))

        async def begun() -> bool:
            return any(row.leases for row in await daemon.rows("one"))

        await wait_for(begun, 10)
        os.kill(keeper, signal.SIGKILL)
        cut = await waiting
        assert cut["_meta"]["mooring/error"]["kind"] == "crashed"
        assert "ended together with what kept it" in cut["content"][0]["text"]
        after = [text(await client.call(f"{name}_pid")) for name in names]
        assert not set(before) & set(after)
        await spares(daemon, "warm")
        assert all(row.state in ("ready", "starting") for row in await daemon.mooring.ps())


async def test_no_more_servers_run_than_allowed_and_the_longest_unused_gives_way(start: Start) -> None:
    """R14: what ps says is what runs; calls in flight are never cut, and who finds no place is told why."""
    names = [f"s{number}" for number in range(5)]
    daemon = await start({name: server() for name in names}, gateway={"max_instances": 2})

    async def all_listed() -> bool:
        return all(row.tools is not None for row in await daemon.mooring.ps())

    await wait_for(all_listed, 30)
    async with await daemon.client("w", timeout=30.0) as client:
        await client.open()

        async def running() -> set[str]:
            rows = await daemon.mooring.ps()
            assert sum(row.pid is not None for row in rows) <= 2
            return {row.server for row in rows if row.state == "ready"}

        for name in names:
            text(await client.call(f"{name}_pid"))
            assert name in await running()
            assert len(descendants(daemon.process.pid)) <= 3, "the keeper and two servers"
        assert await running() == {"s3", "s4"}
        text(await client.call("s3_pid"))
        text(await client.call("s0_pid"))
        assert await running() == {"s3", "s0"}

        long = [asyncio.create_task(client.call(f"{name}_sleep", {"seconds": 14})) for name in ("s0", "s3")]

        async def both_busy() -> bool:
            return sum(row.leases for row in await daemon.mooring.ps()) == 2

        await wait_for(both_busy, 10)
        refused = await client.call("s1_pid")
        assert refused["_meta"]["mooring/error"]["kind"] == "busy"
        assert "gateway.max_instances" in refused["content"][0]["text"]
        for call in long:
            text(await call)
        text(await client.call("s1_pid"))
