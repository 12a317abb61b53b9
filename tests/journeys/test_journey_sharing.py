"""Ten agents, one process; other settings, another; idle, gone; called, back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mooring.testing import wait_for
from mooring.testing.daemon import Daemon, server
from mooring.testing.processes import alive
from mooring.testing.speech import Era

Start = Callable[..., Awaitable[Daemon]]


def text(result: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in result["content"])


async def pids(daemon: Daemon, workspace: str, tool: str, count: int) -> list[int]:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await daemon.client(workspace)) for _ in range(count)]
        await asyncio.gather(*(client.open() for client in clients))
        results = await asyncio.gather(*(client.call(tool) for client in clients))
    return [int(text(result)) for result in results]


async def test_ten_agents_that_ask_for_the_same_server_make_one_process(start: Start) -> None:
    """R11, R7, A21: ten simultaneous requests give one start; equal settings in two workspaces share it."""
    daemon = await start({"echo": server()}, {"a": {"mcp_servers": ["echo"]}, "b": {"mcp_servers": ["echo"]}})
    a, b = await asyncio.gather(pids(daemon, "a", "echo_pid", 5), pids(daemon, "b", "echo_pid", 5))
    assert len({*a, *b}) == 1
    (row,) = await daemon.rows("echo")
    assert (row.state, row.pid, row.workspaces) == ("ready", a[0], ("a", "b"))


async def test_other_kwargs_make_another_process(start: Start) -> None:
    """R7: different settings, different instances, and each is itself."""
    daemon = await start(
        {"echo": server("--name", "{name}", defaults={"name": "plain"})},
        {"a": {"mcp_servers": ["echo"]}, "b": {"mcp_servers": ["echo"], "mcp": {"echo": {"name": "other"}}}},
    )
    (one,), (two,) = await pids(daemon, "a", "echo_pid", 1), await pids(daemon, "b", "echo_pid", 1)
    assert one != two
    variants = {row.variant: row.pid for row in await daemon.rows("echo")}
    assert set(variants.values()) == {one, two}
    assert "echo" in variants


async def test_an_idle_server_stops_and_the_next_call_brings_it_back(start: Start) -> None:
    """R14: after idle_timeout it is gone, really; the next call restarts it; ps tells the truth throughout."""
    daemon = await start({"echo": server(idle_timeout="300ms")})
    (first,) = await pids(daemon, "w", "echo_pid", 1)
    assert alive(first)

    async def stopped() -> bool:
        (row,) = await daemon.rows("echo")
        return row.state == "stopped" and "idle" in row.reason

    await wait_for(stopped, 10)
    assert not alive(first)
    (second,) = await pids(daemon, "w", "echo_pid", 1)
    assert second != first


async def test_a_running_call_keeps_its_server_from_idling(start: Start) -> None:
    """R14: idle stop never cuts a call."""
    daemon = await start({"echo": server(idle_timeout="200ms")})
    async with await daemon.client("w") as client:
        await client.open()
        result = await client.call("echo_sleep", {"seconds": 1.0})
    assert not result.get("isError")


async def test_listing_a_sleeping_server_starts_nothing(start: Start) -> None:
    daemon = await start({"echo": server(idle_timeout="200ms")})
    async with await daemon.client("w") as client:
        await client.open()
        assert (await client.result("tools/list"))["tools"]

        async def stopped() -> bool:
            return [row.state for row in await daemon.rows("echo")] == ["stopped"]

        await wait_for(stopped, 10)
        names = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        assert "echo_echo" in names
        assert [row.state for row in await daemon.rows("echo")] == ["stopped"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_workspaces_reach_only_their_servers(start: Start, era: Era) -> None:
    """A20, R24, invariant 5: unknown and forbidden get one and the same refusal, a result that a model can read."""
    daemon = await start(
        {"one": server(), "two": server()}, {"a": {"mcp_servers": ["one"]}, "b": {"mcp_servers": ["two"]}}
    )
    async with await daemon.client("a", era) as client:
        await client.open()
        names = {tool["name"].partition("_")[0] for tool in (await client.result("tools/list"))["tools"]}
        assert names == {"one"}
        forbidden = await client.call("two_echo", {"text": "hi"})
        unknown = await client.call("three_echo", {"text": "hi"})
    assert forbidden["isError"]
    assert forbidden == unknown


async def test_an_open_session_keeps_its_own_server_and_its_end_ends_it(start: Start) -> None:
    """R14: what belongs to one session does not idle away under it, and does not outlive it."""
    daemon = await start({"echo": server(idle_timeout="200ms", sharing="session")})
    async with await daemon.client("w") as client, await daemon.client("w") as other:
        await client.open()
        await other.open()
        own = int(text(await client.call("echo_pid")))
        assert own != int(text(await other.call("echo_pid")))
        await asyncio.sleep(0.6)  # three times what would end an idle one
        assert int(text(await client.call("echo_pid"))) == own
        await client.delete()
        await wait_for(lambda: not alive(own), 10)
