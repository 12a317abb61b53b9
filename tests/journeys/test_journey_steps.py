"""The steps of a server's life: each has a limit that can be set, a name in the error, and leaves nothing behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mooring.testing import wait_for
from mooring.testing.daemon import Daemon, server
from mooring.testing.processes import alive, descendants

Start = Callable[..., Awaitable[Daemon]]
DEAF = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(600)"
"""Takes connections, and never says anything."""


async def given_up(daemon: Daemon, name: str) -> str:
    """Why the server is not available, once that is known."""

    async def reason() -> str:
        (row,) = await daemon.rows(name)
        return row.reason if row.state == "backoff" else ""

    return await wait_for(reason, 20, 0.02)


async def nothing_left(daemon: Daemon) -> None:
    """Only the keeper."""
    await wait_for(lambda: len(descendants(daemon.process.pid)) == 1, 10, 0.02)


CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "look_up": (
        {**server(timeouts={"look_up": "300ms"}), "secrets": {}},
        "look-up",
        "timeouts.look_up",
    ),
    "start": ({**server("--start-delay", "60", timeouts={"start": "300ms"})}, "discover", "timeouts.start"),
    "initialize": (server("--never-answer", timeouts={"initialize": "300ms"}), "initialize", "timeouts.initialize"),
    "listening": (
        {"command": sys.executable, "args": ["-c", DEAF, "{port}"], "port": 8000, "timeouts": {"start": "1s"}},
        "initialize",
        "timeouts.start",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_start_that_hangs_in_a_step_is_given_up_with_the_step_and_its_setting(
    start: Start, tmp_path: Path, case: str
) -> None:
    """R12, R13: and nothing of it is left."""
    table, step, setting = CASES[case]
    flag = tmp_path / "slow"
    if "secrets" in table:  # fast when the file is read, slow when the server is started
        script = f"test -e {flag} && sleep 60; echo value"
        table = {**table, "secrets": {"TOKEN": {"command": ["sh", "-c", script]}}}
    daemon = await start({"hangs": {**table, "idle_timeout": "50ms"}, "good": server()})
    async with await daemon.client("w", timeout=20.0) as client:
        await client.open()
        if "secrets" in table:
            assert not (await client.call("hangs_pid")).get("isError")

            async def stopped() -> bool:
                return [row.state for row in await daemon.rows("hangs")] == ["stopped"]

            await wait_for(stopped, 10)
            flag.touch()
            began = time.perf_counter()
            assert (await client.call("hangs_pid"))["isError"]
            assert time.perf_counter() - began < 5.0
            flag.unlink()
        reason = await given_up(daemon, "hangs")
        assert "hangs did not" in reason
        assert step in reason
        assert setting in reason
        result = await client.call("hangs_pid")
        assert setting in result["content"][0]["text"]
        assert not (await client.call("good_pid")).get("isError")
        # A secret's command has ten seconds of its own, and is killed then with whatever it started.
        await wait_for(lambda: len(descendants(daemon.process.pid)) == 2, 15, 0.02)


async def test_a_listing_that_hangs_is_named_with_its_setting_and_costs_no_call(start: Start) -> None:
    """R12: what cannot be listed may still serve other lists."""
    daemon = await start({"hangs": server("--hang", "tools/list", timeouts={"discover": "500ms"})})
    async with await daemon.client("w") as client:
        await client.open()

        async def told() -> str:
            (row,) = await daemon.rows("hangs")
            return row.unlisted or row.last_error

        assert "tools/list: no answer within 0.4 s" in await wait_for(told, 10)
        listed = await client.result("prompts/list")
        assert listed["prompts"]
        assert "_meta" not in listed
        missing = (await client.result("tools/list"))["_meta"]["mooring/missing"]
        assert missing[0]["server"] == "hangs"
        assert "tools/list" in missing[0]["reason"]
        _, _, warned = await daemon.command("tools", "-w", "w", "--json")
        assert "not complete: hangs: tools/list" in warned


async def test_a_call_that_hangs_is_named_with_its_setting(start: Start) -> None:
    """R12, A15"""
    daemon = await start({"hangs": server("--hang", "tools/call", timeouts={"call": "300ms"})})
    async with await daemon.client("w") as client:
        await client.open()
        result = await client.call("hangs_pid")
        assert result["_meta"]["mooring/error"]["phase"] == "call"
        assert "timeouts.call" in result["content"][0]["text"]


async def test_an_ending_that_hangs_takes_no_longer_than_its_limit(start: Start) -> None:
    """A13: from the end of its input until it is killed, with whatever it started."""
    flags = ("--ignore-eof", "--ignore-term", "--spawn-grandchild")
    daemon = await start({"hangs": server(*flags, idle_timeout="50ms", timeouts={"close": "600ms"})})
    async with await daemon.client("w") as client:
        await client.open()
        content = (await client.call("hangs_pid"))["structuredContent"]

        async def told_to_stop() -> bool:
            (row,) = await daemon.rows("hangs")
            return row.state != "ready"

        await wait_for(told_to_stop, 10, 0.005)
        began = time.perf_counter()
        await nothing_left(daemon)
        assert time.perf_counter() - began < 3.0
        assert not [pid for pid in (content["pid"], *content["grandchildren"]) if alive(pid)]
