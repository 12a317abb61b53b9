"""``mooring stop`` and SIGTERM while something is going on: nobody is hung up on, and it is over soon."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from mooring.testing import StdioClient, wait_for
from mooring.testing.daemon import Daemon, server
from mooring.testing.processes import alive, descendants
from mooring.testing.speech import Era

Start = Callable[..., Awaitable[Daemon]]
ERAS: tuple[Era, ...] = ("legacy", "modern")


def told(answer: dict[str, Any]) -> str:
    """The reason in a failed answer, whichever form it has."""
    error = answer.get("error") or answer["result"]
    return json.dumps(error)


async def test_calls_under_way_are_answered_before_the_daemon_ends(start: Start) -> None:
    """A13, A15: over HTTP in both eras and over stdio; a call, one that streams, and one that waits for a start."""
    daemon = await start({"echo": server(), "slow": server("--start-delay", "30")})
    argv = [sys.executable, "-m", "mooring", "stdio", "-w", "w"]
    async with (
        await daemon.client("w", "legacy") as legacy,
        await daemon.client("w", "modern") as modern,
        StdioClient(argv, env=daemon.env) as shim,
    ):
        long = {"name": "echo_sleep", "arguments": {"seconds": 30, "steps": 1}}
        calls: list[asyncio.Task[Any]] = []
        for client in (legacy, modern, shim):
            await client.open()
            await client.call("echo_pid")
            calls.append(asyncio.create_task(client.request("tools/call", long)))
        streaming = {**long, "arguments": {"seconds": 30, "steps": 300}, "_meta": {"progressToken": "p"}}
        calls.append(asyncio.create_task(legacy.request("tools/call", streaming)))
        calls.append(asyncio.create_task(legacy.request("tools/call", {"name": "slow_pid", "arguments": {}})))
        await legacy.heard("notifications/progress")

        async def all_begun() -> bool:
            return sum(row.leases for row in await daemon.rows("echo")) == 4

        await wait_for(all_begun, 10)
        family = descendants(daemon.process.pid)
        began = time.perf_counter()
        daemon.process.send_signal(signal.SIGTERM)
        answers = await asyncio.wait_for(asyncio.gather(*calls), 10)
        assert await daemon.ended() == 0
        seconds = time.perf_counter() - began
    assert ["Mooring is stopping" in told(answer) for answer in answers] == [True] * 5, answers
    assert ["may have had an effect" in told(answer) for answer in answers[:4]] == [True] * 4
    assert not [pid for pid in family if alive(pid)]
    assert "Traceback" not in daemon.output
    assert seconds < 6.0


async def test_a_call_that_is_nearly_done_is_done(start: Start) -> None:
    """A stop waits a moment for those under way, and takes no new ones meanwhile."""
    daemon = await start({"echo": server()})
    async with await daemon.client("w") as client, await daemon.client("w") as late:
        await client.open()
        await late.open()
        await client.call("echo_pid")
        call = asyncio.create_task(client.call("echo_sleep", {"seconds": 0.8}))

        async def begun() -> bool:
            return any(row.leases for row in await daemon.rows("echo"))

        await wait_for(begun, 10)
        await daemon.mooring.stop()

        async def refused() -> bool:
            return "takes no more requests" in told({"result": await late.call("echo_pid")})

        await wait_for(refused, 10)
        assert not (await call).get("isError")
        assert await daemon.ended() == 0


async def test_a_stop_with_open_streams_and_nothing_else_takes_no_grace(start: Start) -> None:
    """Streams that never end by themselves hold nothing up."""
    daemon = await start({"echo": server("--changing")})
    async with await daemon.client("w", "legacy") as legacy, await daemon.client("w", "modern") as modern:
        await legacy.open()
        await modern.open()
        await legacy.call("echo_pid")
        async with legacy.listening(), modern.listening({"toolsListChanged": True}):
            await modern.heard("notifications/subscriptions/acknowledged")
            began = time.perf_counter()
            daemon.process.send_signal(signal.SIGTERM)
            assert await daemon.ended() == 0
    assert time.perf_counter() - began < 3.0
